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
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// mostFollowers is how many schedules of a key are retimed in the transaction that changes its profile. More are retimed by an
// operation, keyStep of them in a step: the shards that the schedules lie in are locked meanwhile, and no sweep of them can begin.
const (
	mostFollowers = 500
	keyStep       = 200
)

// retimeKeyKind is the kind of operation that a change of a profile begins when many schedules follow it.
const retimeKeyKind = "retime_key"

// keyRetiming is what such an operation is begun with. Its key is read from the operation's own column, which a rename changes.
type keyRetiming struct {
	Key      string `json:"key"`
	Timezone string `json:"timezone"`
}

// follower is a schedule that follows the profile of its key.
type follower struct {
	ID    int64
	Shard int16
}

// followersOf returns the schedules that follow a key, by id, at most limit after one.
func followersOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key string, after int64, limit int) ([]follower, error) {
	rows, _ := tx.Query(ctx, `
		SELECT id, shard
		FROM schedule
		WHERE tenant_id = $1 AND key = $2 AND by_key AND id > $3
		ORDER BY id
		LIMIT $4`, tenant, key, after, limit) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[follower])
	if err != nil {
		return nil, fmt.Errorf("look for the schedules of a key: %w", err)
	}
	return found, nil
}

// RetimeKey retimes the schedules that follow a key, from now on, by the key's profile, or begins the operation that does. The
// caller has written the profile, and holds the key's lock, so that no schedule begins to follow the profile as it was.
func (s *Schedules) RetimeKey(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key, zone, by string) (*operations.Answer, error) {
	found, err := followersOf(ctx, tx, tenant, key, 0, mostFollowers+1)
	if err != nil {
		return nil, err
	}
	if len(found) <= mostFollowers {
		_, err := s.retimeFollowers(ctx, tx, tenant, found, by)
		return nil, err
	}
	var total int64
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM schedule WHERE tenant_id = $1 AND key = $2 AND by_key`, tenant, key).Scan(&total); err != nil {
		return nil, fmt.Errorf("count the schedules of a key: %w", err)
	}
	op, err := s.Operations.Begin(ctx, tx, operations.Request{
		Tenant: tenant, Kind: retimeKeyKind, Params: keyRetiming{key, zone}, Key: key, Total: &total, By: by,
	})
	return &op, err
}

// retimeKeyStep retimes the next schedules that follow a key by its profile as it is by now.
func (s *Schedules) retimeKeyStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var after int64
	if _, err := op.Read(nil, &after); err != nil {
		return false, err
	}
	key, err := s.lockOperationKey(ctx, tx, op)
	if err != nil || key == "" {
		return err == nil, err
	}
	found, err := followersOf(ctx, tx, op.Tenant, key, after, keyStep)
	if err != nil || len(found) == 0 {
		return err == nil, err
	}
	retimed, err := s.retimeFollowers(ctx, tx, op.Tenant, found, op.By)
	if err != nil {
		return false, err
	}
	op.Done += int64(len(found))
	op.Count("retimed", int64(retimed))
	op.Count("unchanged", int64(len(found)-retimed))
	return len(found) < keyStep, op.Keep(found[len(found)-1].ID)
}

// lockOperationKey locks the key of an operation against changes and renames, and returns it; empty: it was erased.
func (s *Schedules) lockOperationKey(ctx context.Context, tx pgx.Tx, op *operations.Operation) (string, error) {
	read := func() (key string, err error) {
		err = tx.QueryRow(ctx, `SELECT COALESCE(key, '') FROM operation WHERE tenant_id = $1 AND id = $2`, op.Tenant, op.ID).Scan(&key)
		if err != nil {
			return "", fmt.Errorf("read the key of an operation: %w", err)
		}
		return key, nil
	}
	key, err := read()
	for err == nil && key != "" {
		if err := cohorts.LockKeys(ctx, tx, op.Tenant, cohorts.ToFollow, key); err != nil {
			return "", err
		}
		locked := key
		if key, err = read(); key == locked {
			break
		}
	}
	return key, err
}

// retimeFollowers retimes schedules that follow a key, and returns how many have another timing now.
func (s *Schedules) retimeFollowers(ctx context.Context, tx pgx.Tx, tenant tenants.ID, followers []follower, by string) (int, error) {
	if len(followers) == 0 {
		return 0, nil
	}
	ids, shards := make([]int64, len(followers)), map[int16]bool{}
	for i, f := range followers {
		ids[i], shards[f.Shard] = f.ID, true
	}
	if err := LockRows(ctx, tx, tenant, slices.Sorted(maps.Keys(shards)), ids); err != nil {
		return 0, err
	}
	l := load{Schedules: s, tx: tx, tenant: tenant, by: by, memo: newMemo()}
	rows, now, err := readFollowers(ctx, tx, tenant, ids)
	if err != nil {
		return 0, err
	}
	l.now = now
	if err := l.lockDelays(ctx, rows); err != nil {
		return 0, err
	}
	if err := fetchTimings(ctx, tx, s.Timings, tenant, rows); err != nil {
		return 0, err
	}
	var rezoned []int64
	for _, r := range rows {
		moved, err := l.retimeRow(ctx, r)
		if err != nil {
			return 0, err
		}
		if moved {
			rezoned = append(rezoned, r.ID)
		}
	}
	if len(l.rows) == 0 {
		return 0, nil
	}
	if err := l.findCohorts(ctx); err != nil {
		return 0, err
	}
	return len(l.rows), l.writeTimings(ctx, rezoned)
}

// LockRows locks shards, shared, and then schedules that lie in them.
func LockRows(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shards []int16, ids []int64) error {
	var b pgx.Batch
	b.Queue(`SELECT pg_advisory_xact_lock_shared($1, shard) FROM unnest($2::smallint[]) AS s (shard)`, cohorts.ShardLocks, shards)
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
	b.Queue(`SELECT ` + postgres.Now)
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
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
		return false, err
	}
	after, err := l.Timings.CompileStored(ctx, l.tx, r.stored(l.tenant))
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
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
	if err := l.enterLater(ctx, w, l.Timings.Keep(l.tenant, after, nil), from); err != nil {
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
