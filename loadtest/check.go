package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// span is a time in which an acknowledgement may have been lost.
type span struct{ from, to time.Time }

// findings are the mistakes of a run, by kind, and the lateness of its ticks.
type findings struct {
	mu       sync.Mutex
	counts   map[string]int
	examples []string

	fired      []lateness // of hand-outs, by the server's clock
	delivered  []lateness // of first deliveries to a handler, by our clock
	duplicates []duplicate
}

type lateness struct {
	nominal time.Time
	late    time.Duration
}

// duplicate is a repeated delivery.
type duplicate struct {
	workflow string
	first    time.Time // of the earlier delivery
}

// kinds are the kinds of findings that must not occur in a run.
var kinds = []string{
	"lost",                   // a nominal time without a tick, or a tick without a delivery
	"doubled",                // a second tick for one nominal time, or a tick that the spec does not name
	"early",                  // handed out, or received, before its nominal time
	"not_succeeded",          // in the end
	"wrong_last_timestamp",   //
	"wrong_upcoming",         //
	"wrong_message",          // another wrong member
	"bad_signatures",         //
	"unexplained_duplicates", // delivered again although no acknowledgement can have been lost
}

const examplesOf = 3 // of each kind

func (f *findings) add(kind, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	f.counts[kind]++
	if f.counts[kind] <= examplesOf {
		f.examples = append(f.examples, kind+": "+fmt.Sprintf(format, args...))
	}
}

// promise notes all kinds in the report. If a promise does not hold, it prints the first examples and the end of the server's log.
func (f *findings) promise(r *report, p *progress, server *process) {
	f.promiseOf(kinds, r, p, server)
}

func (f *findings) promiseOf(kinds []string, r *report, p *progress, server *process) {
	for _, kind := range kinds {
		r.atMost(kind, float64(f.counts[kind]), 0)
	}
	for _, e := range f.examples {
		p.say("%s", e)
	}
	if !r.holds() {
		p.say("the log of the server ends with:\n%s", server.tail())
	}
}

const (
	settleWithin = 90 * time.Second // deliveries are recorded, and lost leases end
	settlePause  = 200 * time.Millisecond
)

// check compares the history of every planned schedule, and the deliveries to handlers, with the plan.
func check(ctx context.Context, c *carillon.Client, plan []*planned, l *ledger, faults span, step func()) (*findings, error) {
	f := &findings{}
	deadline := time.Now().Add(settleWithin)
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(16)
	for _, p := range plan {
		readers.Go(func() error {
			history, err := settled(ctx, c, p, deadline)
			if err != nil {
				return fmt.Errorf("history of %s: %w", p.key, err)
			}
			f.schedule(p, history, l, faults)
			step()
			return nil
		})
	}
	if err := readers.Wait(); err != nil {
		return nil, err
	}
	for range l.badSigns {
		f.add("bad_signatures", "a request to the endpoint")
	}
	if n := l.unplanned(plan); n > 0 {
		f.add("doubled", "%d delivered nominal times are named by no spec", n)
	}
	return f, nil
}

// settled returns the history of a schedule, oldest first. It waits until all ticks have ended or the deadline has passed.
func settled(ctx context.Context, c *carillon.Client, p *planned, deadline time.Time) ([]carillon.TickRecord, error) {
	for {
		var history []carillon.TickRecord
		for t, err := range c.Schedules.Ticks(ctx, p.workflow, p.key, carillon.TickFilter{}) {
			if err != nil {
				return nil, err
			}
			history = append(history, t)
		}
		if !slices.ContainsFunc(history, unsettled) || time.Now().After(deadline) {
			slices.Reverse(history)
			return history, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(settlePause):
		}
	}
}

func unsettled(t carillon.TickRecord) bool { return t.State == "scheduled" || t.State == "running" }

func (f *findings) schedule(p *planned, history []carillon.TickRecord, l *ledger, faults span) {
	bySlot := map[int64][]carillon.TickRecord{}
	for _, t := range history {
		bySlot[t.Timestamp.Unix()] = append(bySlot[t.Timestamp.Unix()], t)
	}
	if extra := len(history) - len(p.nominal); extra > 0 {
		f.add("doubled", "%s has %d ticks, not %d", p.key, len(history), len(p.nominal))
	}
	for i, nominal := range p.nominal {
		records, got := bySlot[nominal.Unix()], l.of(p.slot(i))
		if len(records) == 0 || len(got) == 0 {
			f.add("lost", "%s at %s: %d ticks in its history, %d deliveries", p.key, stamp(nominal), len(records), len(got))
			continue
		}
		if len(records) > 1 {
			f.add("doubled", "%s at %s has %d ticks", p.key, stamp(nominal), len(records))
		}
		f.record(p, i, records[0])
		f.deliveries(p, i, records[0], got, faults)
	}
}

// record checks the i-th tick of the history.
func (f *findings) record(p *planned, i int, t carillon.TickRecord) {
	if t.State != "succeeded" {
		f.add("not_succeeded", "%s at %s is %s %s", p.key, stamp(p.nominal[i]), t.State, t.Reason)
	}
	if t.FiredAt.Before(p.nominal[i]) {
		f.add("early", "%s at %s was handed out at %s", p.key, stamp(p.nominal[i]), t.FiredAt)
	}
	if !sameLast(p, i, t.LastTimestamp) {
		f.add("wrong_last_timestamp", "%s at %s: the history says %v", p.key, stamp(p.nominal[i]), t.LastTimestamp)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fired = append(f.fired, lateness{p.nominal[i], t.FiredAt.Sub(p.nominal[i])})
}

// deliveries checks all deliveries of the i-th tick.
func (f *findings) deliveries(p *planned, i int, t carillon.TickRecord, got []delivery, faults span) {
	var again []duplicate
	for n, d := range got {
		if d.tick.TickID != t.TickID {
			f.add("doubled", "%s at %s was delivered as %s, its history says %s", p.key, stamp(p.nominal[i]), d.tick.TickID, t.TickID)
		}
		f.message(p, i, t, d)
		if n > 0 {
			before := got[n-1].at
			again = append(again, duplicate{p.workflow, before})
			if before.Before(faults.from) || before.After(faults.to) {
				f.add("unexplained_duplicates", "%s at %s came at %s and again at %s, attempt %d", p.key, stamp(p.nominal[i]), before, d.at, d.tick.Attempt)
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.duplicates = append(f.duplicates, again...)
	f.delivered = append(f.delivered, lateness{p.nominal[i], got[0].at.Sub(p.nominal[i])})
}

// message checks one delivered tick.
func (f *findings) message(p *planned, i int, record carillon.TickRecord, d delivery) {
	nominal, t := p.nominal[i], d.tick
	if d.at.Before(nominal) || t.FiredAt.Before(nominal) {
		f.add("early", "%s at %s was handed out at %s and received at %s", p.key, stamp(nominal), t.FiredAt, d.at)
	}
	if !sameLast(p, i, t.LastTimestamp) {
		f.add("wrong_last_timestamp", "%s at %s: it says %v", p.key, stamp(nominal), t.LastTimestamp)
	}
	if want := p.upcoming(i); !slices.EqualFunc(t.Upcoming, want, time.Time.Equal) {
		f.add("wrong_upcoming", "%s at %s: got %v, want %v", p.key, stamp(nominal), t.Upcoming, want)
	}
	for what, c := range map[string]claim{
		"payload":          {bytes.Equal(t.Payload, p.payload), string(t.Payload)},
		"local_time":       {t.LocalTime.Format(time.RFC3339) == nominal.In(p.zone).Format(time.RFC3339), t.LocalTime},
		"timezone":         {t.Timezone == p.zone.String(), t.Timezone},
		"occurrence":       {t.Occurrence != nil && *t.Occurrence == int64(i+1), t.Occurrence},
		"cause":            {t.Cause == "schedule" || t.Cause == "catch_up", t.Cause},
		"missed_count":     {t.MissedCount == 0, t.MissedCount},
		"schedule_version": {t.ScheduleVersion == p.version, t.ScheduleVersion},
		"schedule_id":      {t.ScheduleID == record.ScheduleID, t.ScheduleID},
		"fired_at":         {t.FiredAt.Equal(record.FiredAt.Truncate(time.Millisecond)), t.FiredAt},
		"lateness_ms":      {t.LatenessMS == t.FiredAt.Sub(nominal).Milliseconds(), t.LatenessMS},
		"attempt":          {t.Attempt >= 1 && t.Attempt <= t.MaxAttempts, t.Attempt},
	} {
		if !c.holds {
			f.add("wrong_message", "%s at %s: %s is %v", p.key, stamp(nominal), what, c.got)
		}
	}
}

// claim is a member of a tick, and whether its value is right.
type claim struct {
	holds bool
	got   any
}

func sameLast(p *planned, i int, last *time.Time) bool {
	if i == 0 {
		return last == nil
	}
	return last != nil && last.Equal(p.nominal[i-1])
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// late returns the lateness of the ticks for which want returns true.
func late(list []lateness, want func(lateness) bool) []time.Duration {
	var picked []time.Duration
	for _, l := range list {
		if want(l) {
			picked = append(picked, l.late)
		}
	}
	return picked
}

func every(lateness) bool { return true }
