// Package chaos is a fault lab on one machine, without containers: PostgreSQL, two processes of each role of Carillon, workers, and endpoints
// with bad habits. Clients change schedules while processes are killed, stopped and cut off. Then all faults end, and an independent
// checker compares the record with what endpoints, workers and clients saw: nothing lost, nothing doubled, nothing early.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options are the settings of a campaign.
type Options struct {
	Seed      uint64
	For       time.Duration // of faults; healing and checking follow it
	Round     time.Duration // between checks during the campaign, which ends at the first violation; 0: no such checks
	Tenants   int
	Schedules int           // at the start, of all tenants
	Busy      int           // the most schedules that fire many times a minute; 0: 150
	Pause     time.Duration // mean pause between the operations of a tenant
	Calm      time.Duration // mean pause between faults
	Faulty    int           // faults at once; 0: none
	Only      []string      // kinds of faults; empty: all
	Binary    string        // of Build, with the tag fault
	Old       string        // another version, with which half of the processes begin; "": none
	Disk      bool          // PostgreSQL has a disk of its own, which can be full
	Mutant    string        // a deliberate bug; the binary must have it
	Drain     time.Duration // bounds the end of all due ticks after the healing; 0: five minutes
	Repeat    string        // the command that runs the same campaign
	Say       func(format string, args ...any)
	Step      func() // called each second of For
}

// kinds returns the faults that can happen.
func (o Options) kinds() []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return len(o.Only) > 0 && !slices.Contains(o.Only, f.kind) || f.kind == "full_disk" && !o.Disk || f.kind == "another_version" && o.Old == ""
	})
}

// Verdict is the result of a campaign.
type Verdict struct {
	Seed       uint64         `json:"seed"`
	Seconds    float64        `json:"seconds"`
	Mutant     string         `json:"mutant,omitempty"`
	Ticks      int            `json:"ticks"`
	Receipts   int            `json:"receipts"`
	Operations int            `json:"operations"`
	Doubtful   int            `json:"doubtful"` // operations with an unknown outcome
	Unanswered int            `json:"unanswered"`
	Terminated int64          `json:"terminated_backends"`
	Internal   int64          `json:"internal_errors"`
	Faults     map[string]int `json:"faults"`
	Crashes    map[string]int `json:"crash_points"`
	Drained    float64        `json:"drained_seconds"`
	Violations int            `json:"violations"`
	ByRule     map[string]int `json:"by_rule"`
	Examples   []Violation    `json:"examples,omitempty"`
	Repeat     string         `json:"repeat"`
}

// Run runs one campaign. It returns an error if the lab could not run; mistakes of Carillon are in the verdict.
func Run(ctx context.Context, o Options) (v *Verdict, err error) {
	o.Say("starting PostgreSQL and %d processes", len(roles))
	lab, err := openLab(ctx, o)
	if err != nil {
		return nil, err
	}
	defer lab.close(context.WithoutCancel(ctx))
	sink, err := openSink(lab)
	if err != nil {
		return nil, err
	}
	defer sink.close()
	lab.sink = sink
	rec := &record{began: time.Now()}
	var clients []*client
	defer func() {
		for _, c := range clients {
			c.http.CloseIdleConnections()
		}
	}()
	for i := range o.Tenants {
		c, err := lab.tenant(ctx, sink, fmt.Sprintf("tenant-%02d", i+1))
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	if err := lab.poison(ctx, sink); err != nil {
		return nil, err
	}
	workers, err := startWorkers(ctx, lab, clients)
	if err != nil {
		return nil, err
	}
	defer workers.stop()
	c, crash, err := lab.judge(ctx, o, clients, rec)
	if err != nil {
		return nil, err
	}
	lab.keep = len(c.violated) > 0 && o.Mutant == ""
	return c.verdict(o, lab, crash), nil
}

// judge runs the campaign, in rounds if the options say so, and checks it.
func (l *Lab) judge(ctx context.Context, o Options, clients []*client, rec *record) (*checker, *crashes, error) {
	writers, err := l.fill(ctx, o, clients)
	if err != nil {
		return nil, nil, err
	}
	crash := &crashes{reached: map[string]int{}}
	hurting := l.troublemakers(o, crash)
	for left := o.For; left > 0; {
		length := left
		if o.Round > 0 {
			length = min(length, o.Round)
		}
		l.healed.Store(false)
		if err := l.campaign(ctx, o, length, writers, hurting); err != nil {
			return nil, nil, err
		}
		if left -= length; o.Round == 0 {
			continue
		}
		rec.judged = time.Now()
		c, err := l.read(ctx, clients, rec, true)
		if err != nil || len(c.violated) > 0 {
			return c, crash, err
		}
	}
	o.Say("healed; PostgreSQL is at %s", l.database)
	sleep(ctx, 5*time.Second)
	for _, c := range clients { // a process that stood still may have disabled it again
		l.sink.reenable(ctx, c, "gone")
	}
	rec.judged = time.Now()
	if err := l.drain(ctx, clients, rec, cmp.Or(o.Drain, drainWithin)); err != nil {
		return nil, nil, err
	}
	o.Say("drained in %s; checking", rec.late.Round(100*time.Millisecond))
	c, err := l.read(ctx, clients, rec, false)
	return c, crash, err
}

// read reads the record and checks it. early says that ticks may still be under way.
func (l *Lab) read(ctx context.Context, clients []*client, rec *record, early bool) (*checker, error) {
	if err := rec.read(ctx, clients); err != nil {
		return nil, err
	}
	l.ledger.acting.Lock()
	defer l.ledger.acting.Unlock()
	c := newChecker(rec, l.history, l.ledger, l.troubles)
	c.early = early
	c.check()
	return c, nil
}

// fill makes clients create their first schedules.
func (l *Lab) fill(ctx context.Context, o Options, clients []*client) ([]*writer, error) {
	writers := make([]*writer, len(clients))
	filling, ctx := errgroup.WithContext(ctx)
	for i, c := range clients {
		writers[i] = &writer{client: c, rand: rand.New(rand.NewPCG(o.Seed, uint64(i))), history: l.history, often: min(1, float64(cmp.Or(o.Busy, busy))/float64(o.Schedules))}
		filling.Go(func() error { return writers[i].fill(ctx, max(1, o.Schedules/len(clients))) })
	}
	if err := filling.Wait(); err != nil {
		return nil, err
	}
	o.Say("%d schedules stored", len(l.history.ops))
	return writers, nil
}

// busy is the default of Options.Busy. Two cores that also run the lab can handle about so many; more would only wait.
const busy = 150

// troublemakers returns o.Faulty sources of faults, each of which causes one fault after another.
func (l *Lab) troublemakers(o Options, crash *crashes) (all []*faulty) {
	for i := range o.Faulty {
		all = append(all, &faulty{Lab: l, rand: rand.New(rand.NewPCG(o.Seed, 1000+uint64(i))), crash: crash, kinds: o.kinds()})
	}
	return all
}

// campaign runs clients and faults for a while, and then heals the lab. Healing lets the running operations end, so it waits for them only
// after that.
func (l *Lab) campaign(ctx context.Context, o Options, length time.Duration, writers []*writer, troublemakers []*faulty) error {
	during, end := context.WithTimeout(ctx, length)
	defer end()
	answering, giveUp := context.WithCancel(ctx)
	defer giveUp()
	all, whole := errgroup.WithContext(answering)
	all.Go(func() error { return workAll(during, whole, writers, o.Pause) })
	hurting, hurt := errgroup.WithContext(during)
	for _, f := range troublemakers {
		hurting.Go(func() error { return f.work(hurt, o.Calm) })
	}
	for o.Step != nil && sleep(during, time.Second) {
		o.Step()
	}
	if err := hurting.Wait(); err != nil {
		end()
		_ = l.heal(ctx)
		_ = all.Wait()
		return err
	}
	<-during.Done()
	if err := l.heal(ctx); err != nil {
		return err
	}
	patience := time.AfterFunc(cmp.Or(o.Drain, answeredWithin), giveUp)
	defer patience.Stop()
	err := all.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		l.ledger.complain(fmt.Sprintf("I10 an operation has no answer %s after the healing", cmp.Or(o.Drain, answeredWithin)))
		return nil
	}
	return err
}

// answeredWithin bounds how long after the healing an operation may still fail, if the options have no Drain.
const answeredWithin = 90 * time.Second

func (c *checker) verdict(o Options, l *Lab, crash *crashes) *Verdict {
	v := &Verdict{
		Seed: o.Seed, Seconds: o.For.Seconds(), Mutant: o.Mutant, Ticks: c.checked, Receipts: l.ledger.count(), Internal: l.internal.Load(), Terminated: l.ended.Load(),
		Faults: l.troubles.counts(), Crashes: crash.reached, Drained: c.record.late.Seconds(),
		ByRule: c.byRule, Examples: c.violated,
		Repeat: o.Repeat,
	}
	for _, n := range c.byRule {
		v.Violations += n
	}
	for _, op := range l.history.ops {
		v.Operations++
		v.Unanswered += max(0, op.Tries-1)
		if op.Outcome == maybe {
			v.Doubtful++
		}
	}
	slices.SortStableFunc(v.Examples, func(a, b Violation) int { return len(a.History) - len(b.History) })
	return v
}
