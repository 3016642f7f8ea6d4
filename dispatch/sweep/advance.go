package sweep

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// lookAhead finds the next member of each walk after its leg, so that the cohort sleeps until that member is due.
func (p *pass) lookAhead(ctx context.Context) error {
	var at []int
	var ids, low, high, lowAgain, highAgain []int64
	var owners []int32
	for i, c := range p.made.moved {
		if c.leg == nil || !c.whole || !c.leg.Last {
			continue
		}
		ranges := append(c.walk.Rest(*c.leg), [2]int64{1, 0}, [2]int64{1, 0}) // empty ranges in place of absent ones
		at, ids, owners = append(at, i), append(ids, c.ID), append(owners, int32(c.TenantID))
		low, high = append(low, ranges[0][0]), append(high, ranges[0][1])
		lowAgain, highAgain = append(lowAgain, ranges[1][0]), append(highAgain, ranges[1][1])
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := p.tx.Query(ctx, `
		SELECT c.ord::int, COALESCE(
			(SELECT phase FROM member WHERE cohort_id = c.id AND tenant_id = c.tenant_id AND phase BETWEEN c.low AND c.high ORDER BY phase LIMIT 1),
			(SELECT phase FROM member WHERE cohort_id = c.id AND tenant_id = c.tenant_id AND phase BETWEEN c.low2 AND c.high2 ORDER BY phase LIMIT 1))
		FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
			WITH ORDINALITY AS c (id, tenant_id, low, high, low2, high2, ord)`, ids, owners, low, high, lowAgain, highAgain)
	if err != nil {
		return fmt.Errorf("look ahead: %w", err)
	}
	var ord int
	var phase *int64
	_, err = pgx.ForEachRow(rows, []any{&ord, &phase}, func() error {
		c := p.made.moved[at[ord-1]]
		if phase != nil {
			c.ahead, c.empty = new(*phase), false
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look ahead: %w", err)
	}
	return nil
}

// place is the position of a cohort after a sweep: its times and its cursor.
type place struct {
	next, due, run, from, empty, wait *time.Time
	phase, id                         *int64
	missed                            *int32
	drop                              *bool
	paced                             bool
}

const leastSleep = 20 * time.Millisecond // of a walk, so that each wake finds more than one member

// place returns the new position of a cohort: its next nominal time, its cursor within the run, or no due time if it has no members or no
// time left.
func (c *due) place(now time.Time) place {
	var next *time.Time
	if !c.run.Next.IsZero() {
		next = &c.run.Next
	}
	within := func(phase, id int64, due time.Time) place {
		return place{
			next: next, due: &due, run: &c.run.At, from: &c.run.From, phase: &phase, id: &id,
			missed: new(int32(c.run.Missed)), drop: &c.run.Drop,
		}
	}
	if c.waits {
		p := within(*c.AtPhase, *c.AtID, now)
		if c.stopped && c.RunAt == nil {
			p = place{next: c.NextAt}
		}
		p.paced = c.paced
		if p.due, p.wait = nil, c.ThrottledAt; p.wait == nil {
			p.wait = &now
		}
		return p
	}
	switch {
	case c.out && c.RetimeAt == nil: // the tick may end before another leg, and finds the cohort only without a run
		return place{}
	case c.whole && c.leg != nil && !c.leg.Last:
		return within(runs.Lowest, -1, now)
	case c.ahead != nil:
		due := c.walk.Due(*c.ahead).Add(time.Millisecond)
		if least := now.Add(leastSleep); due.Before(least) {
			due = least
		}
		return within(c.leg.Upto, math.MaxInt64, due)
	case c.empty:
		return place{empty: &now}
	case c.whole && c.RetimeAt != nil:
		return place{next: next, due: &now}
	case c.whole:
		if next == nil {
			return place{}
		}
		return place{next: next, due: new(c.timing.Due(*next))}
	case c.AtID == nil: // begun, but there was no room for any of its members
		return place{next: c.NextAt, due: &now}
	}
	return within(*c.AtPhase, *c.AtID, now)
}

// idle reports whether a cohort only waits for its next nominal time.
func (p *place) idle() bool {
	return p.next != nil && p.due != nil && p.run == nil && p.empty == nil && p.wait == nil
}

// advance queues the statements that move each begun cohort to its new place. Nearly all cohorts only wait for their next nominal time;
// their statement writes a quarter of the columns.
func (p *pass) advance() {
	b := &p.made.chunks.Along
	var idle []pgtype.TID
	var idleIDs []int64
	var idleNext, idleDue []time.Time
	var ids, phases, afters []*int64
	var next, dueAt, runAt, runFrom, empty, wait []*time.Time
	var missed []*int32
	var drop []*bool
	var paced []bool
	for _, c := range p.made.moved {
		if !c.begun {
			continue
		}
		to := c.place(p.now)
		if to.idle() {
			idle, idleIDs = append(idle, c.Row), append(idleIDs, c.ID)
			idleNext, idleDue = append(idleNext, *to.next), append(idleDue, *to.due)
			continue
		}
		ids, phases, afters = append(ids, &c.ID), append(phases, to.phase), append(afters, to.id)
		next, dueAt, runAt, runFrom, empty = append(next, to.next), append(dueAt, to.due), append(runAt, to.run), append(runFrom, to.from), append(empty, to.empty)
		missed, drop, wait, paced = append(missed, to.missed), append(drop, to.drop), append(wait, to.wait), append(paced, to.paced)
	}
	if len(idle) > 0 {
		b.Queue(`
			UPDATE cohort c
			SET next_at = n.next_at, due_at = `+cohorts.NotPast("n.due_at")+`, throttled_at = NULL, paced = false, run_at = NULL, run_from = NULL, run_missed = NULL,
				at_phase = NULL, at_id = NULL, empty_at = NULL, run_drop = NULL
			FROM unnest($2::tid[], $3::bigint[], $4::timestamptz[], $5::timestamptz[]) AS n (row, id, next_at, due_at)
			WHERE c.ctid = n.row AND c.shard = $1 AND c.id = n.id`, p.shard, idle, idleIDs, idleNext, idleDue).Exec(func(done pgconn.CommandTag) error {
			if int(done.RowsAffected()) != len(idle) {
				return fmt.Errorf("%d idle cohorts of shard %d were read under its lock, but %d rows were updated", len(idle), p.shard, done.RowsAffected())
			}
			return nil
		})
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(`
		UPDATE cohort c
		SET next_at = n.next_at, due_at = CASE WHEN n.throttled_at IS NULL THEN `+cohorts.NotPast("n.due_at")+` ELSE 'infinity' END, throttled_at = n.throttled_at, run_at = n.run_at, run_from = n.run_from, run_missed = n.run_missed,
			at_phase = n.at_phase, at_id = n.at_id, empty_at = n.empty_at, run_drop = n.run_drop, paced = n.paced,
			retime_at = CASE WHEN n.empty_at IS NULL THEN c.retime_at END
		FROM unnest($2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
			$7::int[], $8::bigint[], $9::bigint[], $10::timestamptz[], $11::boolean[], $12::timestamptz[], $13::boolean[])
			AS n (id, next_at, due_at, run_at, run_from, run_missed, at_phase, at_id, empty_at, run_drop, throttled_at, paced)
		WHERE c.shard = $1 AND c.id = n.id`,
		p.shard, ids, next, dueAt, runAt, runFrom, missed, phases, afters, empty, drop, wait, paced)
}
