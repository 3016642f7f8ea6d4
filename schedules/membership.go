package schedules

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// enter places the row's schedule in the cohort of its timing, from the first nominal time after a moment on, which is
// now or later. It says so in the row alone, and leaves open which number the cohort has. It reports false, and changes
// nothing, where no nominal time is left; next is the first that is.
func (r *row) enter(tenant tenants.ID, t *calendar.Timing, missed string, after time.Time) (next time.Time, ok bool) {
	if cohorts.Delays(t) {
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
	r.Spread = 0
	if t.Jitter() > 0 {
		r.Spread = cohorts.PhaseOf(r.stored(tenant).Identity())
	}
	hash := t.Hash()
	r.Hash, r.CohortMissed = hash[:], &missed
	r.NextAt, r.RunAt = nil, nil
	return tick.At, true
}

// armed is by what a schedule fires, and from after which moment on.
type armed struct {
	timing *calendar.Timing
	missed string
	after  time.Time
}

// join enters the cohort and finds its number. The caller stores the member, and holds the shard's shared lock.
func (r *row) join(ctx context.Context, tx pgx.Tx, s *Schedules, a armed, c change) (bool, error) {
	tenant := c.tenant
	t, revision, err := s.Timings.Renew(ctx, tx, tenant, a.timing)
	if err != nil {
		return false, err
	}
	if cohorts.Delays(t) {
		if err := r.lockDelay(ctx, tx, tenant); err != nil {
			return false, err
		}
	}
	next, ok := r.enter(tenant, t, a.missed, a.after)
	if !ok {
		return false, nil
	}
	stamp := cohorts.Stamp{Revision: revision, TZData: t.Zones().Version()}
	if cohorts.Delays(t) {
		if err := r.joinDelay(ctx, tx, tenant, t); err != nil {
			return false, err
		}
		if r.ID != 0 {
			if err := writeDelays(ctx, tx, tenant, r); err != nil {
				return false, err
			}
		}
	} else {
		id, err := cohorts.CohortOf(ctx, tx, cohorts.Shared{Tenant: tenant, Shard: r.Shard, Workflow: r.Workflow, Missed: a.missed, Timing: t}, stamp, c.now)
		if err != nil {
			return false, err
		}
		r.CohortID = &id
	}
	r.Revision, r.Timed = &stamp.Revision, &stamp.TZData
	if next.Sub(c.now) < cohorts.Soon {
		return true, cohorts.WakeSweep(ctx, tx, r.Shard)
	}
	return true, nil
}

// withdraw takes the row out of its cohort, and returns what was due and not yet swept: it is to be handed out first, in
// the same transaction that deletes the member. Without a timing, which cannot be computed, nothing is due.
func (r *row) withdraw(tenant tenants.ID, t *calendar.Timing, now time.Time) (due []Due) {
	if r.CohortID == nil {
		return nil
	}
	if t != nil {
		for run := range r.unserved(t, now) {
			due = append(due, Due{
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

// counted is how many nominal times have come to the member until now.
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

// leave ends the row's membership: what was due and not yet swept is handed out first, in the same transaction.
func (r *row) leave(ctx context.Context, tx pgx.Tx, s *Schedules, tenant tenants.ID, t *calendar.Timing, now time.Time) error {
	if r.CohortID == nil {
		return nil
	}
	cohort, spread, delayed := *r.CohortID, r.Spread, r.delayed()
	if delayed {
		if err := r.lockDelay(ctx, tx, tenant); err != nil {
			return err
		}
	}
	if due := r.withdraw(tenant, t, now); len(due) > 0 {
		if err := s.HandOut(ctx, tx, due); err != nil {
			return fmt.Errorf("hand out what is due: %w", err)
		}
	}
	_, err := tx.Exec(ctx, sabotage.DeletedGoesOn.Instead(`DELETE FROM member WHERE cohort_id = $1 AND spread = $2 AND schedule_id = $3 AND tenant_id = $4`, "AND tenant_id = $4", "AND $4 < 0"),
		cohort, spread, r.ID, tenant)
	if err != nil || !delayed {
		return err
	}
	if err := leaveDelays(ctx, tx, tenant, []int16{r.Shard}, []int64{cohort}); err != nil {
		return err
	}
	return writeDelays(ctx, tx, tenant, r)
}

func (r *row) insertMember(ctx context.Context, tx pgx.Tx, tenant tenants.ID) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO member (cohort_id, spread, schedule_id, tenant_id, from_at, until_at)
		VALUES ($1, $2, $3, $4, $5, $6)`, *r.CohortID, r.Spread, r.ID, tenant, *r.FromAt, r.UntilAt)
	return err
}
