package finish

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Buffer stores ticks that wait for others of their schedules to end. For the schedules in stop, it tells those others to stop and
// skips the ticks that waited before, so that only the newest runs.
func (f *Finisher) Buffer(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, keys []ident.TickKey, stop []int64) error {
	if len(keys) == 0 {
		return nil
	}
	if err := f.stopFor(ctx, tx, tenant, now, stop); err != nil {
		return err
	}
	var a record.Keys
	for _, k := range keys {
		a.Add(k, 0)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq)
		SELECT $1, id, at, seq
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)`, tenant, a.IDs, a.At, a.Seqs)
	if err != nil {
		return fmt.Errorf("buffer ticks: %w", err)
	}
	return nil
}

// stopFor tells the running ticks of schedules to stop, and skips their buffered ticks.
func (f *Finisher) stopFor(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, schedules []int64) error {
	if len(schedules) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(`
		UPDATE tick t
		SET reason = $3
		FROM schedule_state st
		WHERE st.tenant_id = $1 AND st.schedule_id = ANY($2)
			AND `+record.KeyIs("t", "st.tenant_id", "st.schedule_id", state.NewestAt, state.NewestSeq)+`
			AND t.state = $4`, tenant, schedules, int16(record.Superseded), int16(record.Running))
	// A held tick has no worker to stop: it is opened at once, and ends.
	b.Queue(`UPDATE delayed SET due_at = `+postgres.Now+`, waits_for = NULL WHERE tenant_id = $1 AND schedule_id = ANY($2) AND why NOT IN ('answer', 'later')`, tenant, schedules)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("stop running ticks: %w", err)
	}
	rows, err := tx.Query(ctx, `
		WITH gone AS (
			DELETE FROM buffered WHERE tenant_id = $1 AND schedule_id = ANY($2) AND NOT aside RETURNING schedule_id, nominal_at, seq
		), counted AS (`+state.Supersede+`
		)
		UPDATE tick t
		SET state = $3, reason = $4, ended_at = $5
		FROM gone g
		WHERE `+record.KeyIs("t", "$1", "g.schedule_id", "g.nominal_at", "g.seq")+`
		RETURNING t.schedule_id, t.nominal_at, t.seq`,
		tenant, schedules, int16(record.Skipped), int16(record.Superseded), now)
	if err != nil {
		return fmt.Errorf("supersede buffered ticks: %w", err)
	}
	gone, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ident.TickKey])
	if err != nil {
		return fmt.Errorf("supersede buffered ticks: %w", err)
	}
	if len(gone) == 0 {
		return nil
	}
	ids := make([]int64, len(gone))
	for i, k := range gone {
		ids[i] = k.Schedule
	}
	var used pgx.Batch
	record.QueueEndedUse(&used, tenant, now, record.Skipped, record.Superseded, ids...)
	if err := tx.SendBatch(ctx, &used).Close(); err != nil {
		return fmt.Errorf("count superseded ticks: %w", err)
	}
	ended := make(map[ident.TickKey]record.State, len(gone))
	for _, k := range gone {
		ended[k] = record.Skipped
	}
	f.Tail.Ended(tenant, ended)
	return f.Rearm(ctx, tx, tenant, now, gone)
}

// bufferedTick is a buffered tick that is the next of its schedule, with the terms that say when it expires.
type bufferedTick struct {
	ScheduleID  int64
	NominalAt   time.Time
	Seq         int32
	Aside       bool
	Attempt     int16
	Shard       int16
	MaxLateness *int32 `db:"max_lateness_s"`
	OnExpired   *string
	Defaults    []byte
}

// mostBufferedRead is how many buffered ticks are read at once after the oldest of each schedule has expired, but at least one of each.
const mostBufferedRead = 500

// oldestBuffered returns the buffered ticks that are next, up to $3 of each of schedules $2 of tenant $1.
const oldestBuffered = `
	SELECT st.schedule_id, b.nominal_at, b.seq, b.aside, b.attempt, s.shard, s.max_lateness_s, s.on_expired, w.defaults
	FROM schedule_state st
	JOIN schedule s ON s.tenant_id = st.tenant_id AND s.id = st.schedule_id
	LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
	CROSS JOIN LATERAL (
		SELECT nominal_at, seq, aside, attempt
		FROM buffered
		WHERE tenant_id = st.tenant_id AND schedule_id = st.schedule_id AND (st.live = 0 OR aside AND ` + policy.OverlapSQL + ` = 'allow_all')
		ORDER BY aside, nominal_at, seq
		LIMIT $3
	) b
	WHERE st.tenant_id = $1 AND st.schedule_id = ANY($2) AND st.aside = 0
	ORDER BY st.schedule_id, b.aside, b.nominal_at, b.seq`

// release hands out the oldest buffered tick of each of the schedules, in the transaction that ended the tick before it: the schedule's
// own ticks before those aside. It skips ticks that have expired meanwhile.
func (f *Finisher) release(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, ids []int64) error {
	for most := 1; len(ids) > 0; most = mostBufferedRead {
		rows, _ := tx.Query(ctx, oldestBuffered, tenant, ids, max(1, most/len(ids))) // CollectRows reports the error
		next, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[bufferedTick])
		if err != nil {
			return fmt.Errorf("read buffered ticks: %w", err)
		}
		if ids, err = f.releaseSome(ctx, tx, tenant, now, next); err != nil {
			return err
		}
	}
	return nil
}

// releaseSome hands out the first tick of each schedule that has not expired, and skips those before it. It returns the schedules whose
// ticks have all expired. The ticks of a schedule follow one another.
func (f *Finisher) releaseSome(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, next []*bufferedTick) (again []int64, err error) {
	var b pgx.Batch
	var late []ident.TickKey
	released := int64(0) // the schedule of the last released tick
	for _, w := range next {
		if w.ScheduleID == released {
			continue
		}
		k := ident.TickKey{Schedule: w.ScheduleID, At: w.NominalAt.UTC(), Seq: w.Seq}
		if w.expired(now) {
			late = append(late, k)
			f.Tail.EndedOne(tenant, k, record.Skipped)
			if n := len(again); n == 0 || again[n-1] != w.ScheduleID {
				again = append(again, w.ScheduleID)
			}
			continue
		}
		released = w.ScheduleID
		if n := len(again); n > 0 && again[n-1] == released {
			again = again[:n-1]
		}
		w.queueRelease(&b, tenant, now)
		f.Tail.Released(tenant, k)
		if err := cohorts.WakeSweep(ctx, tx, w.Shard); err != nil {
			return nil, err
		}
	}
	if err := skipExpired(ctx, tx, tenant, now, late); err != nil {
		return nil, err
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("release buffered ticks: %w", err)
	}
	return again, f.Rearm(ctx, tx, tenant, now, late)
}

// expired reports whether a buffered tick is too late to be handed out. If this program cannot read the defaults of the workflow, it
// returns false: the tick is released, and its delivery waits for a program that can read them.
func (w *bufferedTick) expired(now time.Time) bool {
	terms, err := policy.Resolve(policy.Stored{MaxLateness: w.MaxLateness, OnExpired: w.OnExpired}, w.Defaults)
	return err == nil && w.Seq == 0 && !w.Aside && terms.Expired(w.NominalAt, now)
}

// skipExpired ends buffered ticks as skipped.
func skipExpired(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, late []ident.TickKey) error {
	if len(late) == 0 {
		return nil
	}
	var keys record.Keys
	for _, k := range late {
		keys.Add(k, 0)
	}
	err := record.UpdateTicks(ctx, tx, late, record.TickUpdate{
		SQL: `
			UPDATE tick t
			SET state = $8, reason = $9, ended_at = $10
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
			WHERE ` + record.ThatTick,
		Args: func(part []ident.TickKey) []any {
			var keys record.Keys
			for _, k := range part {
				keys.Add(k, 0)
			}
			return []any{tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, int16(record.Skipped), int16(record.Expired), now}
		},
		Each: func() error { return nil },
	})
	if err != nil {
		return fmt.Errorf("skip expired ticks: %w", err)
	}
	var b pgx.Batch
	b.Queue(`
		DELETE FROM buffered b
		USING unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		WHERE `+record.InKeys("b"), tenant, keys.IDs, keys.At, keys.Seqs)
	record.QueueEndedUse(&b, tenant, now, record.Skipped, record.Expired, keys.IDs...)
	state.Expire(&b, tenant, keys.IDs)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("skip expired ticks: %w", err)
	}
	return nil
}

// queueRelease makes the tick running, and holds it for the next sweep.
func (w *bufferedTick) queueRelease(b *pgx.Batch, tenant tenants.ID, now time.Time) {
	b.Queue(`DELETE FROM buffered WHERE `+record.ByKey, tenant, w.ScheduleID, w.NominalAt, w.Seq)
	w.queueState(b, tenant, now)
	k := ident.TickKey{Schedule: w.ScheduleID, At: w.NominalAt.UTC(), Seq: w.Seq}
	if w.Attempt <= 1 { // a tick that is delivered again was counted before
		t := record.Tick{ScheduleID: w.ScheduleID, NominalAt: w.NominalAt, FiredAt: now}
		if w.Aside {
			t.Cause = record.Backfill
		}
		record.QueueFiredUse(b, tenant, now, &t)
	}
	record.QueueDelayed(b, tenant, w.Shard, record.Try{TickKey: k, Attempt: w.Attempt}, "released", now)
}

// queueState moves a released tick in the counters of its schedule's state. A timed tick also gets its occurrence and last_at.
func (w *bufferedTick) queueState(b *pgx.Batch, tenant tenants.ID, now time.Time) {
	if w.Aside {
		again := w.Attempt > 1 // it was handed out before
		state.ReleaseAside(b, state.Schedule{Tenant: tenant, ID: w.ScheduleID}, again)
		b.Queue(`UPDATE tick SET state = $5, fired_at = CASE WHEN $7 THEN fired_at ELSE $6 END WHERE `+record.ByKey,
			tenant, w.ScheduleID, w.NominalAt, w.Seq, int16(record.Running), now, again)
		return
	}
	timed := w.Seq == 0
	b.Queue(`
		WITH st AS (`+state.Release+`
		)
		UPDATE tick t
		SET state = $6, fired_at = GREATEST($7, t.nominal_at), cause = CASE WHEN $5 THEN $8::smallint ELSE t.cause END, last_at = st.prev_at,
			occurrence = CASE WHEN $5 THEN st.occurrence END
		FROM st
		WHERE `+record.KeyIs("t", "$1", "$2", "$3", "$4"),
		tenant, w.ScheduleID, w.NominalAt, w.Seq, timed, int16(record.Running), now, int16(record.Buffered))
}

// CancelOrphans cancels buffered ticks of deleted schedules, up to record.MostCleared, and returns how many. The database marks them
// when the schedule is deleted.
func (f *Finisher) CancelOrphans(ctx context.Context) (n int64, err error) {
	rows, _ := f.pool.Query(ctx, `
		WITH gone AS (
			DELETE FROM buffered
			WHERE ctid = ANY (ARRAY (SELECT ctid FROM buffered WHERE orphan LIMIT $2))
			RETURNING tenant_id, schedule_id, nominal_at, seq
		), ended AS (
			UPDATE tick t
			SET state = $1, ended_at = `+postgres.Now+`
			FROM gone g
			WHERE `+record.SameKey("t", "g")+`
			RETURNING t.tenant_id, t.schedule_id AS id, 0 AS due, 0 AS fired, 0 AS good, 0 AS bad, 1 AS gone, 0 AS skipped, 0 AS retried, 0 AS bytes, -1::smallint AS bucket, 0::smallint AS reason
		), used AS (`+record.EndedUse("i.tenant_id", postgres.Now, "ended i")+`
		)
		SELECT tenant_id, schedule_id, nominal_at, seq FROM gone`, int16(record.Cancelled), record.MostCleared) // ForEachRow reports the error
	var tenant tenants.ID
	var k ident.TickKey
	_, err = pgx.ForEachRow(rows, []any{&tenant, &k.Schedule, &k.At, &k.Seq}, func() error {
		n++
		f.Tail.EndedOne(tenant, k, record.Cancelled)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("cancel buffered ticks of deleted schedules: %w", err)
	}
	return n, nil
}
