package schedules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// mostFollowers is how many schedules of a key are retimed in one transaction: one for each workflow that follows it.
const mostFollowers = 10_000

// retimeKey retimes the schedules that follow a key, from now on, by the key's profile. The caller has written the profile, and
// holds the key's lock.
func (s *Schedules) retimeKey(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key, by string) error {
	followers, err := lockFollowers(ctx, tx, tenant, key)
	if err != nil || len(followers) == 0 {
		return err
	}
	l := load{Schedules: s, tx: tx, tenant: tenant, by: by, memo: newMemo()}
	rows, now, err := readFollowers(ctx, tx, tenant, followers)
	if err != nil {
		return err
	}
	l.now = now
	if err := l.lockDelays(ctx, rows); err != nil {
		return err
	}
	if err := s.Timings.fetch(ctx, tx, tenant, rows); err != nil {
		return err
	}
	var rezoned []int64
	for _, r := range rows {
		moved, err := l.retimeRow(ctx, r)
		if err != nil {
			return err
		}
		if moved {
			rezoned = append(rezoned, r.ID)
		}
	}
	if len(l.rows) == 0 {
		return nil
	}
	if err := l.findCohorts(ctx); err != nil {
		return err
	}
	return l.writeTimings(ctx, rezoned)
}

// lockFollowers locks the schedules that follow a key, their shards first, in the order in which all lock them.
func lockFollowers(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key string) (ids []int64, err error) {
	rows, _ := tx.Query(ctx, `
		SELECT id, shard
		FROM schedule
		WHERE tenant_id = $1 AND key = $2 AND by_key
		LIMIT $3`, tenant, key, mostFollowers+1) // ForEachRow reports the error
	shards := map[int16]bool{}
	var id int64
	var shard int16
	_, err = pgx.ForEachRow(rows, []any{&id, &shard}, func() error {
		ids, shards[shard] = append(ids, id), true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the schedules of a key: %w", err)
	}
	if len(ids) > mostFollowers {
		return nil, fault.Conflict("too_many_schedules", "more than %d schedules follow the key", mostFollowers)
	}
	return ids, lockRows(ctx, tx, tenant, slices.Sorted(maps.Keys(shards)), ids)
}

// lockRows locks shards, shared, and then schedules that lie in them.
func lockRows(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shards []int16, ids []int64) error {
	var b pgx.Batch
	b.Queue(`SELECT pg_advisory_xact_lock_shared($1, shard) FROM unnest($2::smallint[]) AS s (shard)`, shardLocks, shards)
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`, tenant, ids)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("lock schedules: %w", err)
	}
	return nil
}

// readFollowers reads those of locked schedules that still follow their key, and the clock.
func readFollowers(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ids []int64) (rows []*row, now time.Time, err error) {
	var b pgx.Batch
	b.Queue(`SELECT `+rowColumns+` FROM `+rowTables+` WHERE s.tenant_id = $1 AND s.id = ANY($2) AND s.by_key`, tenant, ids)
	b.Queue(`SELECT clock_timestamp()`)
	results := tx.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	found, _ := results.Query() // CollectRows reports the error
	if rows, err = pgx.CollectRows(found, scanRow); err != nil {
		return nil, now, fmt.Errorf("read schedules of a key: %w", err)
	}
	if err := results.QueryRow().Scan(&now); err != nil {
		return nil, now, fmt.Errorf("read clock: %w", err)
	}
	return rows, now.UTC(), nil
}

// retimeRow has a member of a cohort leave it for that of its timing by the profile of its key. Its definition, and so its
// version, stays. It reports whether it is one that fires once a day, and has another zone now.
func (l *load) retimeRow(ctx context.Context, r *row) (rezoned bool, err error) {
	if r.CohortID == nil { // it is timed when it fires again
		return false, nil
	}
	r.wake(l.now)
	before, err := r.timing(ctx, l.tx, l.Timings, l.tenant)
	if err != nil && !errors.Is(err, errUncomputable) {
		return false, err
	}
	after, err := r.compile(ctx, l.tx, l.Timings, l.tenant)
	if err != nil && !errors.Is(err, errUncomputable) {
		return false, err
	}
	if before != nil && after != nil && before.Hash() == after.Hash() {
		return false, nil
	}
	left := membership{cohort: *r.CohortID, spread: r.Spread, schedule: r.ID}
	if r.delayed() {
		left.alone = r
	}
	l.ends = append(l.ends, left)
	w := &rewrite{row: r}
	l.rows = append(l.rows, w)
	due := r.withdraw(l.tenant, before, l.now)
	if after == nil {
		l.due = append(l.due, due...)
		r.Status, r.PausedAt, r.PausedUntil = Quarantined, nil, nil
		r.StatusNote = new("its spec cannot be computed in the zone of its key")
		return false, nil
	}
	for i := range due {
		if _, _, quiet := after.QuietHours(l.now); !quiet && before.Waits(due[i].Run.At) { // what waited need not wait any longer
			due[i].Run.Quiet = false
		}
	}
	l.due = append(l.due, due...)
	r.first = after.FirstAt(r.CreatedAt)
	from := l.now
	if r.Status == Paused {
		from = r.PausedUntil.Add(-time.Second)
	}
	if err := l.enterLater(ctx, w, l.Timings.keep(l.tenant, after, nil), from); err != nil {
		return false, err
	}
	if !w.joins && r.Status == Active {
		r.Status = Completed
	}
	return before != nil && before.Zone() != after.Zone() && after.OnceADay(l.now), nil
}

// writeTimings hands out what was due, and writes the timings of rows that are stored; those that are rezoned fire no
// sooner than some hours after they last did.
func (l *load) writeTimings(ctx context.Context, rezoned []int64) error {
	if len(l.due) > 0 {
		if err := l.HandOut(ctx, l.tx, l.due); err != nil {
			return fmt.Errorf("hand out what is due: %w", err)
		}
	}
	var c columns
	for _, w := range l.rows {
		c.add(w)
	}
	var b pgx.Batch
	l.expel(&b)
	c.enroll(&b, l)
	b.Queue(`
		UPDATE schedule s
		SET status = n.status, status_note = n.status_note, ticks_left = n.ticks_left, paused_at = n.paused_at, paused_until = n.paused_until,
			cohort_id = n.cohort_id, spread = n.spread, tzdata = $2
		FROM unnest($3::bigint[], $4::text[], $5::text[], $6::int[], $7::timestamptz[], $8::timestamptz[], $9::bigint[], $10::bigint[])
			AS n (id, status, status_note, ticks_left, paused_at, paused_until, cohort_id, spread)
		WHERE s.tenant_id = $1 AND s.id = n.id`,
		l.tenant, calendar.InForce().Version(), c.ids, c.statuses, c.statusNotes, c.ticksLeft, c.pausedAt, c.pausedUntil, c.cohorts, c.spreads)
	b.Queue(`UPDATE schedule_state SET rezoned_at = $3 WHERE tenant_id = $1 AND schedule_id = ANY($2)`, l.tenant, rezoned, l.now)
	if err := l.tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("retime schedules: %w", err)
	}
	return l.writeDelays(ctx)
}
