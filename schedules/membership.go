package schedules

import (
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
)

// enter places the row in the cohort of its timing, from the first nominal time after a moment on, which is now or later. It changes only
// the row; the id of the cohort is found later. next is the first nominal time. enter returns false, and changes nothing, if no nominal
// time is left.
func (r *row) enter(tenant tenants.ID, t *calendar.Timing, missed string, after time.Time) (next time.Time, ok bool) {
	if runs.Delays(t) {
		return r.enterDelay(tenant, t, missed, after)
	}
	from := after.Truncate(time.Second).Add(time.Second)
	if r.first.After(from) {
		from = r.first
	}
	tick, ok := t.Next(from.Add(-time.Second))
	if !ok || (r.TicksLeft != nil && *r.TicksLeft < 1) {
		return next, false
	}
	r.FromAt, r.UntilAt = &from, nil
	if r.TicksLeft != nil {
		last, _ := t.Nth(tick.At, int(*r.TicksLeft))
		r.UntilAt = &last.At
	}
	r.Phase = 0
	if t.Jitter() > 0 {
		r.Phase = runs.PhaseOf(r.stored(tenant).Identity())
	}
	hash := t.Hash()
	r.Hash, r.CohortMissed = hash[:], &missed
	r.NextAt, r.RunAt = nil, nil
	return tick.At, true
}

// withdraw takes the row out of its cohort, and returns the ticks that were due and not yet swept. They are handed out in the transaction
// that deletes the member. t is nil if the timing cannot be computed; then nothing is due.
func (r *row) withdraw(tenant tenants.ID, t *calendar.Timing, now time.Time) (due []cohorts.Due) {
	if r.CohortID == nil {
		return nil
	}
	if t != nil {
		for run := range r.unserved(t, now) {
			due = append(due, cohorts.Due{
				Tenant: tenant, Shard: r.Shard, Cohort: *r.CohortID, Schedule: r.ID,
				Run: run, Missed: run.Missed,
			})
		}
	}
	if r.delayed() {
		r.withdrawDelay(due)
	} else if r.TicksLeft != nil && t != nil {
		r.TicksLeft = new(int32(max(0, int(*r.TicksLeft)-r.counted(t, now))))
	}
	r.then, r.Revision, r.Timed, r.RetimeAt = nil, nil, nil, nil
	r.CohortID, r.Hash, r.FromAt, r.UntilAt, r.NextAt, r.RunAt = nil, nil, nil, nil, nil, nil
	return due
}

// counted returns how many nominal times have come to the member until now.
func (r *row) counted(t *calendar.Timing, now time.Time) int {
	end := now.Add(time.Microsecond)
	if r.then == nil {
		return t.Count(*r.FromAt, end)
	}
	middle := r.RetimeAt.Add(time.Microsecond)
	if middle.Before(*r.FromAt) {
		middle = *r.FromAt
	}
	return t.Count(*r.FromAt, middle) + r.then.Count(middle, end)
}
