package schedules

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
)

// DueChannel is the PostgreSQL notification channel on which the number of a shard says that something in it is due
// before the next look of its sweeper.
const DueChannel = "carillon_due"

// soon is how near a due time must be for its shard's sweeper to be woken: sweepers look that often by themselves.
const soon = 250 * time.Millisecond

// enter places the row's schedule in the cohort of its timing, from the first nominal time after a moment on, which is
// now or later. It says so in the row alone, and leaves open which number the cohort has. It reports false, and changes
// nothing, where no nominal time is left; next is the first that is.
func (r *row) enter(tenant tenants.ID, t *calendar.Timing, missed string, after time.Time) (next time.Time, ok bool) {
	if delays(t) {
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
		r.Spread = spreadOf(r.identity(tenant))
	}
	hash := t.Hash()
	r.Hash, r.CohortMissed = hash[:], &missed
	r.NextAt, r.RunAt = nil, nil
	return tick.At, true
}

// join enters the cohort and finds its number. The caller stores the member, and holds the shard's shared lock.
func (r *row) join(ctx context.Context, tx pgx.Tx, s *Schedules, tenant tenants.ID, t *calendar.Timing, missed string, after, now time.Time) (bool, error) {
	t, revision, err := s.Timings.renew(ctx, tx, tenant, t)
	if err != nil {
		return false, err
	}
	if delays(t) {
		if err := r.lockDelay(ctx, tx, tenant); err != nil {
			return false, err
		}
	}
	next, ok := r.enter(tenant, t, missed, after)
	if !ok {
		return false, nil
	}
	stamp := Stamp{revision, t.Zones().Version()}
	if delays(t) {
		if err := r.joinDelay(ctx, tx, tenant, t); err != nil {
			return false, err
		}
		if r.ID != 0 {
			if err := writeDelays(ctx, tx, tenant, r); err != nil {
				return false, err
			}
		}
	} else {
		id, err := cohortOf(ctx, tx, tenant, r.Shard, r.Workflow, t, missed, stamp, now)
		if err != nil {
			return false, err
		}
		r.CohortID = &id
	}
	r.Revision, r.Timed = &stamp.Revision, &stamp.TZData
	if next.Sub(now) < soon {
		return true, WakeSweep(ctx, tx, r.Shard)
	}
	return true, nil
}

// WakeSweep notifies the sweep of a shard once the transaction is committed.
func WakeSweep(ctx context.Context, tx pgx.Tx, shard int16) error {
	return postgres.Notify(ctx, tx, DueChannel, strconv.Itoa(int(shard)))
}

// cohortOf finds the cohort of a timing, awake, or makes it.
func cohortOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shard int16, workflow string, t *calendar.Timing, missed string, stamp Stamp, now time.Time) (id int64, err error) {
	hash := t.Hash()
	err = tx.QueryRow(ctx, `
		SELECT c.id
		FROM cohort_timing n
		JOIN cohort c ON c.shard = n.shard AND c.id = n.id AND c.tenant_id = n.tenant_id
		WHERE n.tenant_id = $1 AND n.workflow = $2 AND n.shard = $3 AND n.hash = $4 AND n.missed = $5 AND c.due_at IS NOT NULL`,
		tenant, workflow, shard, hash[:], missed).Scan(&id)
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return id, err
	}
	next, _ := t.Next(now)
	// Two that make the same cohort at once wait for one another here; the second finds it awake.
	err = tx.QueryRow(ctx, `
		WITH n AS (`+nameCohort+`)
		INSERT INTO cohort AS c (id, shard, tenant_id, workflow, hash, missed, ordered, next_at, due_at, calendars, revision, tzdata)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, n.ordered, $7::timestamptz, `+NotPast("$8::timestamptz")+`, $9::text[], $10::bigint, $11::text
		FROM n
		ON CONFLICT (shard, id) DO UPDATE
		SET revision = CASE WHEN c.due_at IS NULL THEN excluded.revision ELSE c.revision END,
		    tzdata = CASE WHEN c.due_at IS NULL THEN excluded.tzdata ELSE c.tzdata END,
		    next_at = CASE WHEN c.due_at IS NULL THEN excluded.next_at ELSE c.next_at END,
		    due_at = COALESCE(c.due_at, excluded.due_at),
		    empty_at = NULL
		RETURNING id`,
		shard, tenant, workflow, hash[:], missed, string(t.Canonical()), next.At, t.Due(next.At), t.Named(), stamp.Revision, stamp.TZData).Scan(&id)
	return id, err
}

// NotPast is an SQL expression for a due time that is written: it is no earlier than the clock. Looks rely on it: they begin where
// an earlier look ended, and would not find an earlier time.
func NotPast(due string) string {
	return `(CASE WHEN ` + due + ` < clock_timestamp() THEN clock_timestamp() ELSE ` + due + ` END)`
}

// fewSchedules is how many schedules a tenant has before its new cohorts are kept in the order of their next times: those made
// before are few enough to be read and sorted.
const fewSchedules = 2000

// nameCohort finds the number of a cohort by what names it, or gives it one, and keeps others from it until the transaction
// ends. $6 is the timing. How many schedules the tenant has is what the last second's count says.
var nameCohort = fmt.Sprintf(`
			INSERT INTO cohort_timing AS t (shard, tenant_id, workflow, hash, missed, timing, ordered)
			VALUES ($1, $2, $3, $4, $5, $6, EXISTS (SELECT FROM tally WHERE tenant_id = $2 AND cohort_id = 0 AND n >= %d))
			ON CONFLICT ON CONSTRAINT cohort_timing_pkey DO UPDATE
			SET timing = t.timing
			RETURNING id, shard, tenant_id, workflow, hash, missed, ordered`, fewSchedules)

// ByNextTime finds the cohorts of tenant $1 by their next times: those that are kept in that order, and the few that are not.
// The query of either is made of where cohorts d with some columns are found, in the order of next_at and id, and of what holds
// for them, and is ordered and limited by itself, as the two together are to be: the planner does not walk two sources in one
// order.
func ByNextTime(columns, where string, query func(from, where string) string) string {
	few := `(
				SELECT ` + columns + `
				FROM cohort_timing f
				JOIN cohort d ON d.shard = f.shard AND d.id = f.id AND d.tenant_id = $1
				WHERE f.tenant_id = $1 AND NOT f.ordered AND ` + where + `
				ORDER BY d.next_at, d.id
				OFFSET 0
			) d`
	return `(` + query("cohort d", "d.tenant_id = $1 AND d.ordered AND "+where) + `)
			UNION ALL
			(` + query(few, "true") + `)`
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
