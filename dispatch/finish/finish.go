package finish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// The outcomes of an attempt, as table attempt stores them.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	TimedOut  = "timed_out"
	Lost      = "lost"
	Cancelled = "cancelled"
)

// Ending is how one attempt at a tick ended.
type Ending struct {
	ident.TickKey
	Attempt    int16
	Outcome    string
	Final      bool          // a failure that is not retried
	RetryAfter time.Duration // the least wait before a retry
	Result     *string
	Err        *string
	Status     *int32 // of the HTTP response
	Worker     *string
	Started    *time.Time
	Answered   bool // the worker's answer to a push was awaited
	Unsent     bool // the attempt was never made, and is not recorded
}

// mostErrorText is how many bytes of an error's text are stored.
const mostErrorText = 4096

// ErrorText returns the first mostErrorText bytes of an error, as text that can be stored.
func ErrorText(text string) *string {
	if len(text) > mostErrorText {
		text = text[:mostErrorText]
	}
	return new(record.Valid(text))
}

// End ends attempts of one tenant's ticks, in the caller's transaction, and returns the states of the ticks whose attempts ended. An
// ending of an attempt that is not under way changes nothing. A tick whose attempt failed is held for its next attempt, or ends as
// failed.
func (f *Finisher) End(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, endings []Ending) (map[ident.TickKey]record.State, error) {
	done := &ends{tenant: tenant, now: now, ended: map[ident.TickKey]record.State{}, tallies: map[int64]*tally{}, began: time.Now(), traces: f.Traces}
	good := map[ident.TickKey]*Ending{}
	bad := map[ident.TickKey]*Ending{}
	var answered []*Ending
	for i := range endings {
		e := &endings[i]
		if e.Answered {
			answered = append(answered, e)
		}
		if e.Outcome == Succeeded {
			good[e.TickKey] = e
			continue
		}
		bad[e.TickKey] = e
	}
	if err := done.endGood(ctx, tx, good); err != nil {
		return nil, err
	}
	if err := done.endBad(ctx, tx, bad); err != nil {
		return nil, err
	}
	if err := dropAnswers(ctx, tx, tenant, answered); err != nil {
		return nil, err
	}
	if err := f.countEnded(ctx, tx, done); err != nil {
		return nil, err
	}
	f.Tail.Ended(tenant, done.ended)
	if err := f.freeSlots(ctx, tx, tenant, now, done.ended); err != nil {
		return nil, err
	}
	f.recordSpans(done)
	return done.ended, nil
}

// ends are the ticks of a tenant whose attempts end in one transaction, at now.
type ends struct {
	tenant  tenants.ID
	now     time.Time
	ended   map[ident.TickKey]record.State // the state of each tick after the end of its attempt
	tallies map[int64]*tally               // by schedule
	began   time.Time
	traces  *trace.Tracer
	traced  []tracedEnd
}

// tally counts the ended ticks of one schedule; aside is how many of them ran aside.
type tally struct {
	succeeded, failed, cancelled, aside int32
	bytes                               int64 // of results
	bucket                              int16 // of the longest time to an end; record.NoBucket: none ended but aside
}

// count adds a tick that ended after a time to n, a field of t.
func (t *tally) count(n *int32, aside bool, took time.Duration) {
	*n++
	if aside {
		t.aside++
		return
	}
	t.bucket = max(t.bucket, record.LatenessBucket(took))
}

// tally returns the tally of a schedule, a new one if there is none.
func (d *ends) tally(schedule int64) *tally {
	t := d.tallies[schedule]
	if t == nil {
		t = &tally{bucket: record.NoBucket}
		d.tallies[schedule] = t
	}
	return t
}

// endGood ends the ticks of attempts that succeeded.
func (d *ends) endGood(ctx context.Context, tx pgx.Tx, good map[ident.TickKey]*Ending) error {
	if len(good) == 0 {
		return nil
	}
	var k ident.TickKey
	var state record.State
	var aside bool
	var stored []byte
	err := record.UpdateTicks(ctx, tx, slices.Collect(maps.Keys(good)), record.TickUpdate{
		SQL: sabotage.LeaseUnchecked.Without(`
			UPDATE tick t
			SET state = CASE WHEN t.reason <> 0 THEN $12::smallint ELSE $8::smallint END, ended_at = $9, result = i.result
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $10::text[]) AS i (id, at, seq, attempt, result)
			WHERE `+record.ThatTick+` AND t.state = $11 AND t.attempt = i.attempt
			RETURNING t.schedule_id, t.nominal_at, t.seq, t.state, t.trace, `+record.IsAside, "AND t.attempt = i.attempt"),
		Args: func(part []ident.TickKey) []any {
			var keys record.Keys
			results := make([]*string, len(part))
			for i, k := range part {
				keys.Add(k, good[k].Attempt)
				results[i] = good[k].Result
			}
			return []any{
				d.tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, int16(record.Succeeded), d.now, results, int16(record.Running),
				int16(record.Cancelled),
			}
		},
		Scan: []any{&k.Schedule, &k.At, &k.Seq, &state, &stored, &aside},
		Each: func() error {
			k.At = k.At.UTC()
			d.ended[k] = state
			d.trace(stored, good[k])
			t := d.tally(k.Schedule)
			if result := good[k].Result; result != nil {
				t.bytes += int64(len(*result))
			}
			if state == record.Cancelled { // it was told to stop before its result came
				t.count(&t.cancelled, aside, d.now.Sub(k.At))
				return nil
			}
			t.count(&t.succeeded, aside, d.now.Sub(k.At))
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("end ticks: %w", err)
	}
	return nil
}

// endBad ends attempts that did not succeed. It holds a tick for its retry. A tick without a retry ends, and becomes a dead letter if it
// failed.
func (d *ends) endBad(ctx context.Context, tx pgx.Tx, bad map[ident.TickKey]*Ending) error {
	if len(bad) == 0 {
		return nil
	}
	found, err := d.readUnderWay(ctx, tx, bad)
	if err != nil {
		return err
	}
	var b pgx.Batch
	var dead record.Keys
	var retries []record.Delayed
	var retried []int64
	for _, u := range found {
		k := ident.TickKey{Schedule: u.ScheduleID, At: u.NominalAt.UTC(), Seq: u.Seq}
		e := bad[k]
		d.trace(u.Trace, e)
		due, again := u.retryAt(e, d.now)
		if !e.Unsent {
			b.Queue(`
				INSERT INTO attempt (tenant_id, schedule_id, nominal_at, seq, attempt, started_at, ended_at, outcome, status, error, worker)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
				ON CONFLICT DO NOTHING`,
				d.tenant, k.Schedule, k.At, k.Seq, e.Attempt, e.Started, d.now, e.Outcome, e.Status, e.Err, e.Worker)
		}
		if again && sabotage.NoRetry.On() {
			d.ended[k] = record.Running
			continue
		}
		if again {
			retries = append(retries, record.Delayed{Try: record.Try{TickKey: k, Attempt: e.Attempt + 1}, Shard: u.Shard, Why: "retry", Due: due})
			b.Queue(`UPDATE tick SET attempt = attempt + 1 WHERE `+record.ByKey,
				d.tenant, k.Schedule, k.At, k.Seq)
			retried = append(retried, k.Schedule)
			d.ended[k] = record.Running
			continue
		}
		total := d.tally(k.Schedule)
		state, count := record.Failed, &total.failed
		if e.Outcome == Cancelled || u.Stopped {
			state, count = record.Cancelled, &total.cancelled
		} else {
			dead.Add(k, e.Attempt)
		}
		total.count(count, u.Aside, d.now.Sub(k.At))
		d.ended[k] = state
		b.Queue(`UPDATE tick SET state = $5, ended_at = $6, error = $7 WHERE `+record.ByKey,
			d.tenant, k.Schedule, k.At, k.Seq, int16(state), d.now, e.Err)
	}
	record.QueueAllDelayed(&b, d.tenant, retries)
	record.QueueRetriedUse(&b, d.tenant, d.now, retried)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("write failed ticks: %w", err)
	}
	return insertDeadLetters(ctx, tx, d.tenant, dead)
}

// readUnderWay reads and locks the ticks of attempts that failed, if those attempts are under way.
func (d *ends) readUnderWay(ctx context.Context, tx pgx.Tx, bad map[ident.TickKey]*Ending) ([]*underWay, error) {
	var keys record.Keys
	for k, e := range bad {
		keys.Add(k, e.Attempt)
	}
	rows, _ := tx.Query(ctx, `
		SELECT t.schedule_id, t.nominal_at, t.seq, t.shard, t.trace, t.reason <> 0 AS stopped, `+record.IsAside+` AS aside, COALESCE(t.replayed_from, 0) AS "from",
			COALESCE(s.max_attempts, r.max_attempts) AS max_attempts,
			COALESCE(s.max_lateness_s, r.max_lateness_s) AS max_lateness_s, COALESCE(s.on_expired, r.on_expired) AS on_expired, w.defaults
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+record.TheTick+` ON t.state = $8 AND t.attempt = i.attempt
		LEFT JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id AND s.version = t.version
		LEFT JOIN revision r ON r.tenant_id = t.tenant_id AND r.schedule_id = t.schedule_id AND r.version = t.version
		LEFT JOIN workflow w ON w.tenant_id = t.tenant_id AND w.name = CASE WHEN s.workflow IS NULL THEN r.workflow ELSE s.workflow END
		FOR UPDATE OF t`,
		d.tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, int16(record.Running)) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[underWay])
	if err != nil {
		return nil, fmt.Errorf("read failed ticks: %w", err)
	}
	return found, nil
}

// dropAnswers deletes the rows of delayed that await the answers of these endings.
func dropAnswers(ctx context.Context, tx pgx.Tx, tenant tenants.ID, answered []*Ending) error {
	if len(answered) == 0 {
		return nil
	}
	var keys record.Keys
	for _, e := range answered {
		keys.Add(e.TickKey, e.Attempt)
	}
	_, err := tx.Exec(ctx, `
		DELETE FROM delayed h
		USING unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		WHERE `+record.InKeys("h")+` AND h.why = 'answer'`,
		tenant, keys.IDs, keys.At, keys.Seqs)
	return err
}

// countEnded counts the ends in the states of the schedules. It pauses schedules whose ticks failed too often in a row.
func (f *Finisher) countEnded(ctx context.Context, tx pgx.Tx, done *ends) error {
	if len(done.tallies) == 0 {
		return nil
	}
	tenant, now := done.tenant, done.now
	var ids []int64
	var good, bad, gone, own, aside []int32
	var bytes []int64
	var buckets []int16
	for _, id := range slices.Sorted(maps.Keys(done.tallies)) { // sorted: transactions lock the same schedules in one order
		t := done.tallies[id]
		ids, good, bad, gone = append(ids, id), append(good, t.succeeded), append(bad, t.failed), append(gone, t.cancelled)
		own, aside = append(own, t.succeeded+t.failed+t.cancelled-t.aside), append(aside, t.aside)
		bytes, buckets = append(bytes, t.bytes), append(buckets, t.bucket)
	}
	rows, err := tx.Query(ctx, `
		WITH used AS (`+record.EndedUse("$1", "$8::timestamptz", `(
			SELECT id, 0 AS due, 0 AS fired, good, bad, gone, 0 AS skipped, 0 AS retried, bytes, bucket, 0::smallint AS reason
			FROM unnest($2::bigint[], $3::int[], $4::int[], $7::int[], $9::bigint[], $10::smallint[]) AS n (id, good, bad, gone, bytes, bucket)
		) i`)+`)`+state.End, tenant, ids, good, bad, own, aside, gone, now, bytes, buckets)
	if err != nil {
		return fmt.Errorf("count ended ticks: %w", err)
	}
	c, err := done.readCounted(rows)
	if err != nil {
		return fmt.Errorf("count ended ticks: %w", err)
	}
	if err := state.ListFailing(ctx, tx, tenant, c.began, c.recovered); err != nil {
		return err
	}
	if err := f.Rearm(ctx, tx, tenant, now, c.passed); err != nil {
		return err
	}
	if err := f.release(ctx, tx, tenant, now, c.released); err != nil {
		return err
	}
	return f.markFailing(ctx, tx, tenant, c.failing)
}

// counted has the schedules of ended ticks that need something more.
type counted struct {
	failing   []int64         // a tick failed
	began     []int64         // likewise, and the last one before did not
	recovered []int64         // a tick succeeded after failures
	released  []int64         // a buffered tick may be handed out
	passed    []ident.TickKey // ticks of fixed_delay that are over
}

// readCounted reads what state.End returns.
func (done *ends) readCounted(rows pgx.Rows) (c counted, err error) {
	var id int64
	var failures int32
	var free bool
	var delay *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &failures, &free, &delay}, func() error {
		if delay != nil {
			k := ident.TickKey{Schedule: id, At: delay.UTC()}
			if state, did := done.ended[k]; did && state != record.Running {
				c.passed = append(c.passed, k)
			}
		}
		switch {
		case failures == state.Recovered:
			c.recovered = append(c.recovered, id)
		case failures > 0:
			if c.failing = append(c.failing, id); failures == done.tallies[id].failed {
				c.began = append(c.began, id)
			}
		}
		if free {
			c.released = append(c.released, id)
		}
		return nil
	})
	return c, err
}

// LockTick locks the row of a tick, and then reads the clock. t is nil if there is no such tick.
func LockTick(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (t *record.Tick, now time.Time, err error) {
	rows, _ := tx.Query(ctx, `
		SELECT `+record.Columns+`
		FROM tick t
		WHERE `+record.KeyIs("t", "$1", "$2", "$3", "$4")+`
		FOR UPDATE`, tenant, k.Schedule, k.At, k.Seq) // CollectExactlyOneRow reports the error
	t, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[record.Tick])
	if errors.Is(err, pgx.ErrNoRows) {
		t, err = nil, nil
	}
	if err != nil {
		return nil, now, fmt.Errorf("lock tick: %w", err)
	}
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return nil, now, fmt.Errorf("read clock: %w", err)
	}
	return t, now.UTC(), nil
}
