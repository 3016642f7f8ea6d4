package sweep

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/runs"
)

const mostLimited = 1000 // members with max_ticks whose end is found in one transaction

// served reports whether a cohort has handed out all times of its timing up to the moment of a change of that timing.
func (c *due) served() bool {
	return c.RetimeAt != nil && c.RunAt == nil && (c.NextAt == nil || c.NextAt.After(*c.RetimeAt))
}

// retime computes the next times of served cohorts with the current calendars and zones, and returns the other cohorts. The old timing
// served all times up to the change; the next time is the first one after it, so none is lost. retime quarantines a cohort that cannot be
// computed.
func (p *pass) retime(ctx context.Context, all []*due) (others []*due, err error) {
	var served []*due
	for _, c := range all {
		if c.served() {
			served = append(served, c)
		} else {
			others = append(others, c)
		}
	}
	if len(served) == 0 {
		return others, nil
	}
	if served, err = p.sleepEmpty(ctx, served); err != nil {
		return nil, err
	}
	left := mostLimited
	for _, c := range served {
		t, revision, err := p.timings.Renew(ctx, p.tx, c.TenantID, c.timing)
		if cohorts.Uncomputable(err) {
			p.aside.leave(c, p.now, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("retime cohort %d: %w", c.ID, err)
		}
		n, err := p.limit(ctx, c, t, left)
		if err != nil {
			return nil, err
		}
		if left -= n; left <= 0 { // the cohort stays due
			continue
		}
		if err := p.retimeOne(ctx, c, t, revision); err != nil {
			return nil, err
		}
	}
	return others, p.aside.write(ctx, p.tx, p.shard)
}

// sleepEmpty ends the retiming of cohorts without members, and returns the other cohorts. It computes no times, because a calendar that
// only empty cohorts name may already be deleted.
func (p *pass) sleepEmpty(ctx context.Context, all []*due) ([]*due, error) {
	ids := make([]int64, len(all))
	for i, c := range all {
		ids[i] = c.ID
	}
	rows, _ := p.tx.Query(ctx, `
		UPDATE cohort c
		SET next_at = NULL, due_at = NULL, throttled_at = NULL, paced = false, retime_at = NULL, empty_at = $3
		WHERE c.shard = $1 AND c.id = ANY($2) AND NOT EXISTS (SELECT FROM member m WHERE m.cohort_id = c.id AND m.tenant_id = c.tenant_id)
		RETURNING c.id`, p.shard, ids, p.now) // CollectRows reports the error
	empty, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for cohorts without members: %w", err)
	}
	return slices.DeleteFunc(all, func(c *due) bool { return slices.Contains(empty, c.ID) }), nil
}

// retimeOne writes the next time and the stamp of a cohort by its new timing.
func (p *pass) retimeOne(ctx context.Context, c *due, t *calendar.Timing, revision int64) error {
	var next, dueAt *time.Time
	if tick, ok := t.Next(*c.RetimeAt); ok {
		next, dueAt = &tick.At, new(t.Due(tick.At))
	}
	_, err := p.tx.Exec(ctx, `
		UPDATE cohort
		SET next_at = $3, due_at = `+cohorts.NotPast("$6::timestamptz")+`, revision = $4, tzdata = $5, retime_at = NULL, throttled_at = NULL, paced = false
		WHERE shard = $1 AND id = $2`, p.shard, c.ID, next, revision, t.Zones().Version(), dueAt)
	if err != nil {
		return fmt.Errorf("retime cohort %d: %w", c.ID, err)
	}
	return nil
}

// limited is a member that ends after a number of ticks.
type limited struct {
	Phase      int64
	ScheduleID int64
	FromAt     time.Time
	UntilAt    time.Time
	TicksLeft  int32
}

// limit computes the last times of at most n members with max_ticks again, with the new timing of their cohort. It counts the ticks of
// the old timing. It returns the number of members.
func (p *pass) limit(ctx context.Context, c *due, t *calendar.Timing, n int) (int, error) {
	rows, _ := p.tx.Query(ctx, `
		SELECT m.phase, m.schedule_id, m.from_at, m.until_at, s.ticks_left
		FROM member m
		JOIN schedule s ON s.tenant_id = m.tenant_id AND s.id = m.schedule_id
		WHERE m.cohort_id = $1 AND m.tenant_id = $2 AND m.until_at IS NOT NULL AND m.retimed_at IS DISTINCT FROM $3 AND s.ticks_left IS NOT NULL
		ORDER BY s.id
		LIMIT $4`, c.ID, c.TenantID, *c.RetimeAt, n) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[limited])
	if err != nil {
		return 0, fmt.Errorf("read members of cohort %d: %w", c.ID, err)
	}
	if len(found) == 0 {
		return 0, nil
	}
	ids, phases := make([]int64, len(found)), make([]int64, len(found))
	lefts, froms, untils := make([]int32, len(found)), make([]time.Time, len(found)), make([]time.Time, len(found))
	ends := map[runs.Limit]time.Time{}
	for i, m := range found {
		ids[i], phases[i], untils[i] = m.ScheduleID, m.Phase, m.UntilAt
		rest := runs.Limit{From: m.FromAt.UTC(), Left: int(m.TicksLeft)}
		if !m.FromAt.After(*c.RetimeAt) {
			rest.From = c.RetimeAt.UTC().Truncate(time.Second).Add(time.Second)
			rest.Left = max(0, rest.Left-c.timing.Count(m.FromAt, c.RetimeAt.Add(time.Microsecond)))
		}
		lefts[i], froms[i] = int32(rest.Left), rest.From
		if rest.Left == 0 {
			untils[i] = minTime(m.UntilAt, *c.RetimeAt)
			continue
		}
		end, known := ends[rest]
		if !known {
			end = rest.Last(t)
			ends[rest] = end
		}
		untils[i] = end
	}
	_, err = p.tx.Exec(ctx, `
		WITH n AS (
			SELECT * FROM unnest($3::bigint[], $4::bigint[], $5::int[], $6::timestamptz[], $7::timestamptz[]) AS n (phase, id, ticks_left, from_at, until_at)
		), counted AS (
			UPDATE schedule s
			SET ticks_left = n.ticks_left
			FROM n
			WHERE s.tenant_id = $2 AND s.id = n.id
		)
		UPDATE member m
		SET from_at = n.from_at, until_at = n.until_at, retimed_at = $8
		FROM n
		WHERE m.cohort_id = $1 AND m.phase = n.phase AND m.schedule_id = n.id AND m.tenant_id = $2`,
		c.ID, c.TenantID, phases, ids, lefts, froms, untils, *c.RetimeAt)
	if err != nil {
		return 0, fmt.Errorf("limit members of cohort %d: %w", c.ID, err)
	}
	return len(found), nil
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
