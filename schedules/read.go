package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
)

// Get returns one schedule.
func (s *Schedules) Get(ctx context.Context, tenant tenants.ID, workflow, key string) (Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	r, now, err := readRow(ctx, s.Pool, tenant, workflow, key)
	if err != nil {
		return Schedule{}, err
	}
	return r.schedule(ctx, s.Pool, s, tenant, now)
}

// GetByID returns the schedule that an id names.
func (s *Schedules) GetByID(ctx context.Context, tenant tenants.ID, id string) (Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	none := fault.NotFound("no schedule has the id %q", id)
	n, ok := s.IDs.ParseSchedule(id)
	if !ok {
		return Schedule{}, none
	}
	rows, _, now, err := readRows(ctx, s.Pool, 1, web.MostPage, byID, tenant, []int64{n})
	defer web.Done(ctx, rows, (*row).held)
	if err != nil {
		return Schedule{}, err
	}
	if len(rows) == 0 {
		return Schedule{}, none
	}
	return rows[0].schedule(ctx, s.Pool, s, tenant, now)
}

func readRow(ctx context.Context, db postgres.DB, tenant tenants.ID, workflow, key string) (*row, time.Time, error) {
	var b pgx.Batch
	b.Queue(oneRow, tenant, workflow, key)
	b.Queue(`SELECT ` + postgres.Now)
	results := db.SendBatch(ctx, &b)
	defer results.Close()
	var now time.Time
	rows, err := results.Query()
	if err != nil {
		return nil, now, fmt.Errorf("read schedule: %w", err)
	}
	r, err := collectRow(rows)
	if err != nil {
		return nil, now, fmt.Errorf("read schedule: %w", err)
	}
	if r == nil {
		return nil, now, absent(workflow, key)
	}
	if err := results.QueryRow().Scan(&now); err != nil {
		return nil, now, fmt.Errorf("read clock: %w", err)
	}
	return r, now.UTC(), nil
}

// UpcomingTick is one coming tick of a spec.
type UpcomingTick struct {
	Timestamp time.Time        `json:"timestamp"`
	LocalTime string           `json:"local_time"`
	DST       calendar.DSTNote `json:"dst"`
}

// Preview tells what a spec does: its coming ticks, a reading in English, warnings and its class for DST.
type Preview struct {
	Ticks     []UpcomingTick     `json:"ticks"`
	Reading   string             `json:"reading"`
	Warnings  []calendar.Warning `json:"warnings"`
	Class     calendar.Class     `json:"class"`
	Exhausted bool               `json:"exhausted"`
}

// Upcoming returns up to count coming ticks of a stored schedule, strictly after from (now where it is zero).
func (s *Schedules) Upcoming(ctx context.Context, tenant tenants.ID, workflow, key string, count int, from time.Time) (Preview, error) {
	_, out, _, err := s.lookAhead(ctx, tenant, workflow, key, count, from)
	return out, err
}

// lookAhead is Upcoming that also returns the schedule, and the time at which it was read.
func (s *Schedules) lookAhead(ctx context.Context, tenant tenants.ID, workflow, key string, count int, from time.Time) (r *row, out Preview, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	if r, now, err = readRow(ctx, s.Pool, tenant, workflow, key); err != nil {
		return nil, out, now, err
	}
	r.wake(now)
	t, err := r.timing(ctx, s.Pool, s.Timings, tenant)
	if errors.Is(err, cohorts.ErrUncomputable) {
		return nil, out, now, fault.Fields(fault.Field{Pointer: "/spec", Code: "not_computable", Detail: "the schedule's spec can no longer be computed"})
	}
	if err != nil {
		return nil, out, now, err
	}
	after := now
	if !from.IsZero() {
		after = from
	}
	next := r.nextAfter
	if r.Status == policy.Paused && r.CohortID == nil {
		next = r.wouldBe(t, now)
	}
	out = preview(t, after, time.Time{}, count, next)
	if runs.Delays(t) && r.Status != policy.Completed {
		out.Exhausted = false // what comes depends on when a tick ends
	}
	out.Warnings = append(out.Warnings, r.warnings(ctx, s.Pool, s.Timings, tenant, t, now)...)
	return r, out, now, nil
}

// wouldBe returns the coming ticks that a paused schedule would have if it were resumed now.
func (r *row) wouldBe(t *calendar.Timing, now time.Time) func(*calendar.Timing, time.Time) (time.Time, bool) {
	resumed := row{FromAt: new(now.Truncate(time.Second).Add(time.Second)), Skips: r.Skips}
	if runs.Delays(t) && r.DelayAt == nil && (r.TicksLeft == nil || *r.TicksLeft > 0) {
		if tick, ok := t.Next(*resumed.FromAt); ok {
			resumed.NextAt = &tick.At
		}
		return resumed.nextAfter
	}
	if r.TicksLeft != nil {
		resumed.UntilAt = &now // none is left
		if last, ok := t.Nth(*resumed.FromAt, int(*r.TicksLeft)); ok && *r.TicksLeft > 0 {
			resumed.UntilAt = &last.At
		}
	}
	return resumed.nextAfter
}

// PreviewParams are an unsaved spec and which of its ticks are asked for.
type PreviewParams struct {
	Spec     calendar.Spec `json:"spec"`
	Workflow string        `json:"workflow,omitempty"` // with Key: the schedule that the spec would be of, as H depends on it
	Key      string        `json:"key,omitempty"`
	Subject  string        `json:"subject,omitempty"` // whose profile @subject follows; empty: Key

	From  *time.Time `json:"from,omitempty"`
	Count *int       `json:"count,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// PreviewSpec returns what an unsaved spec would do for a tenant. Its anchor is now. It warns of a spec that fires more often than the
// smallest interval, or in a minute that is crowded already.
func (s *Schedules) PreviewSpec(ctx context.Context, tenant tenants.ID, p PreviewParams, q tenants.Quotas) (Preview, error) {
	now, smallest := time.Now(), smallestInterval(q)
	count := upcomingShown
	if p.Count != nil {
		count = *p.Count
	}
	countErr := fault.Join(checkCount("/count", count), p.checkNames())
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	a, err := s.Timings.CalendarsNow(ctx, s.Pool, tenant, cohorts.CalendarsOf(p.Spec))
	if err != nil {
		return Preview{}, err
	}
	profile, err := s.previewProfile(ctx, tenant, p)
	if err != nil {
		return Preview{}, err
	}
	t, err := calendar.Compile(p.Spec, a.In(profile.Context(wholeSecond(now), cohorts.Identity(tenant, p.Workflow, p.Key))))
	if err := fault.Join(countErr, cohorts.SpecFault(err)); err != nil {
		return Preview{}, err
	}
	after, until := now, time.Time{}
	if p.From != nil {
		after = p.From.UTC()
	}
	if p.Until != nil {
		until = p.Until.UTC()
	}
	left := count
	if p.Spec.MaxTicks != nil {
		left = *p.Spec.MaxTicks
	}
	out := preview(t, after, until, count, func(t *calendar.Timing, after time.Time) (time.Time, bool) {
		if first := t.FirstAt(wholeSecond(now)).Add(-time.Second); after.Before(first) && p.From == nil && !runs.Delays(t) {
			after = first
		}
		tick, ok := t.Next(after)
		if runs.Delays(t) && p.From == nil && after.Equal(now) {
			tick, ok = t.First(wholeSecond(now))
		}
		if left--; left < 0 && p.Spec.MaxTicks != nil {
			return time.Time{}, false
		}
		return tick.At, ok
	})
	out.Warnings = append(out.Warnings, t.Warnings(now)...)
	text, err := json.Marshal(p.Spec)
	if err != nil {
		return Preview{}, fmt.Errorf("write spec: %w", err)
	}
	if len(text) > q.SpecBytes {
		out.Warnings = append(out.Warnings, calendar.Warning{Code: "spec_too_large", Detail: specTooLarge(len(text), q).Detail})
	}
	if gap := t.MinGap(now); gap > 0 && gap < smallest {
		out.Warnings = append(out.Warnings, calendar.Warning{Code: "interval_too_small", Detail: tooSmall(gap, smallest)})
	}
	out.Warnings = append(out.Warnings, s.Forecasts.Of(ctx, tenant).Peak(t, p.Workflow, q, now)...)
	return out, nil
}

// checkNames returns the faults of the names in a preview.
func (p PreviewParams) checkNames() error {
	var errs []error
	if p.Workflow != "" {
		errs = append(errs, policy.CheckName("/workflow", "workflow", p.Workflow))
	}
	if p.Key != "" {
		errs = append(errs, policy.CheckKey("/key", p.Key))
	}
	if p.Subject != "" {
		errs = append(errs, policy.CheckSubject("/subject", p.Subject))
	}
	return fault.Join(errs...)
}

// previewProfile returns the profile that the spec of a preview follows: that of the subject, or of the key.
func (s *Schedules) previewProfile(ctx context.Context, tenant tenants.ID, p PreviewParams) (cohorts.Profile, error) {
	if !cohorts.FollowsSubject(p.Spec) {
		return cohorts.Profile{}, nil
	}
	follower := cohorts.Follower{Workflow: p.Workflow, Subject: cmp.Or(p.Subject, p.Key)}
	found, err := cohorts.ReadProfiles(ctx, s.Pool, tenant, follower)
	return found[follower], err
}

func checkCount(pointer string, count int) error {
	if count < 1 || count > 1000 {
		return fault.Invalid(pointer, "%d is not between 1 and 1000", count)
	}
	return nil
}

func preview(t *calendar.Timing, after, until time.Time, count int, next func(*calendar.Timing, time.Time) (time.Time, bool)) Preview {
	out := Preview{Ticks: []UpcomingTick{}, Reading: t.Reading(), Warnings: []calendar.Warning{}, Class: t.Class()}
	for {
		at, ok := next(t, after)
		if !ok {
			out.Exhausted = true
			return out
		}
		if len(out.Ticks) == count || !until.IsZero() && at.After(until) {
			return out
		}
		tick, _ := t.Prev(at.Add(time.Second))
		out.Ticks = append(out.Ticks, UpcomingTick{at, t.Local(at).Format(time.RFC3339), tick.DST})
		after = at
	}
}

const icsType = "text/calendar"

// UpcomingICS returns the result of Upcoming as an iCalendar (RFC 5545): an event without a length for each coming tick. Its UID depends
// on the schedule and the nominal time only.
func (s *Schedules) UpcomingICS(ctx context.Context, tenant tenants.ID, workflow, key string, count int, from time.Time) (string, error) {
	r, p, now, err := s.lookAhead(ctx, tenant, workflow, key, count, from)
	if err != nil {
		return "", err
	}
	cal := ics.NewCalendarFor("Carillon")
	cal.SetCalscale("GREGORIAN")
	for _, tick := range p.Ticks {
		e := cal.AddEvent(fmt.Sprintf("%s-%d@carillon", s.IDs.Schedule(r.ID), tick.Timestamp.Unix()))
		e.SetDtStampTime(now)
		e.SetStartAt(tick.Timestamp)
		e.SetSummary(workflow + "/" + key)
		e.SetDescription(p.Reading)
		e.SetTimeTransparency(ics.TransparencyTransparent)
	}
	return cal.Serialize(ics.WithNewLineWindows), nil
}
