package dispatch

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// How an attempt ended, as the record of attempts says it.
const (
	succeeded = "succeeded"
	failed    = "failed"
	timedOut  = "timed_out"
	lost      = "lost"
	cancelled = "cancelled"
)

// ending is how one attempt at a tick ended.
type ending struct {
	ident.TickKey
	attempt    int16
	outcome    string
	final      bool          // a failure that is not tried again
	retryAfter time.Duration // the least wait before it is
	result     *string
	err        *string
	status     *int32 // of HTTP
	worker     *string
	started    *time.Time
	answered   bool // it ends a tick whose answer was awaited
	unsent     bool // the attempt was never made, and there is nothing to tell of it
}

// mostKept bounds what is kept of an error's text.
const mostKept = 4096

func keep(text string) *string {
	if len(text) > mostKept {
		text = text[:mostKept]
	}
	return new(valid(text))
}

// end ends attempts of one tenant's ticks, in the caller's transaction. Only an attempt that is under way ends: the
// keys of those that did are returned. One that failed is held for its next try, or its tick ends as failed.
func (d *Dispatch) end(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, endings []ending) (map[ident.TickKey]State, error) {
	ended := map[ident.TickKey]State{}
	good := map[ident.TickKey]*ending{}
	bad := map[ident.TickKey]*ending{}
	var answered []*ending
	for i := range endings {
		e := &endings[i]
		if e.answered {
			answered = append(answered, e)
		}
		if e.outcome == succeeded {
			good[e.TickKey] = e
			continue
		}
		bad[e.TickKey] = e
	}
	states := map[int64]*tally{}
	if err := endGood(ctx, tx, tenant, now, good, ended, states); err != nil {
		return nil, err
	}
	if err := d.endBad(ctx, tx, tenant, now, bad, ended, states); err != nil {
		return nil, err
	}
	if err := dropAnswers(ctx, tx, tenant, answered); err != nil {
		return nil, err
	}
	if err := d.countEnded(ctx, tx, tenant, now, ended, states); err != nil {
		return nil, err
	}
	return ended, d.freeSlots(ctx, tx, tenant, now, ended)
}

// tally is what the ended ticks of one schedule change of its state; aside is how many of them ran aside.
type tally struct {
	succeeded, failed, cancelled, aside int32
	bytes                               int64 // of results
}

func (t *tally) count(n *int32, aside bool) {
	*n++
	if aside {
		t.aside++
	}
}

// isAside holds for a tick t that is a backfill's, or was delivered again: it runs beside the schedule's own.
var isAside = fmt.Sprintf(`(t.cause = %d OR t.replayed_from IS NOT NULL)`, int16(Backfill))

func of(states map[int64]*tally, schedule int64) *tally {
	t := states[schedule]
	if t == nil {
		t = &tally{}
		states[schedule] = t
	}
	return t
}

func endGood(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, good map[ident.TickKey]*ending, ended map[ident.TickKey]State, states map[int64]*tally) error {
	if len(good) == 0 {
		return nil
	}
	var k ident.TickKey
	var state State
	var aside bool
	err := updateTicks(ctx, tx, slices.Collect(maps.Keys(good)), tickUpdate{
		sql: sabotage.LeaseUnchecked.Without(`
			UPDATE tick t
			SET state = CASE WHEN t.reason <> 0 THEN $12::smallint ELSE $8::smallint END, ended_at = $9, result = i.result
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $10::text[]) AS i (id, at, seq, attempt, result)
			WHERE `+thatTick+` AND t.state = $11 AND t.attempt = i.attempt
			RETURNING t.schedule_id, t.nominal_at, t.seq, t.state, `+isAside, "AND t.attempt = i.attempt"),
		args: func(part []ident.TickKey) []any {
			var keys keyArrays
			results := make([]*string, len(part))
			for i, k := range part {
				keys.add(k, good[k].attempt)
				results[i] = good[k].result
			}
			return []any{
				tenant, keys.ids, keys.at, keys.seqs, keys.tries, keys.from, keys.through, int16(Succeeded), now, results, int16(Running),
				int16(Cancelled),
			}
		},
		scan: []any{&k.Schedule, &k.At, &k.Seq, &state, &aside},
		each: func() error {
			k.At = k.At.UTC()
			ended[k] = state
			t := of(states, k.Schedule)
			if result := good[k].result; result != nil {
				t.bytes += int64(len(*result))
			}
			if state == Cancelled { // it was told to stop: its result came too late
				t.count(&t.cancelled, aside)
				return nil
			}
			t.count(&t.succeeded, aside)
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("end ticks: %w", err)
	}
	return nil
}

// underWay is a tick whose attempt failed, with the terms that say whether it is tried again.
type underWay struct {
	ScheduleID  int64
	NominalAt   time.Time
	Seq         int32
	Shard       int16
	Stopped     bool // told to stop
	Aside       bool
	From        int16 // attempts that do not count: those before it was delivered again
	MaxAttempts *int16
	MaxLateness *int32 `db:"max_lateness_s"`
	OnExpired   *string
	Defaults    []byte
}

func (d *Dispatch) endBad(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, bad map[ident.TickKey]*ending, ended map[ident.TickKey]State, states map[int64]*tally) error {
	if len(bad) == 0 {
		return nil
	}
	var keys keyArrays
	for k, e := range bad {
		keys.add(k, e.attempt)
	}
	rows, _ := tx.Query(ctx, `
		SELECT t.schedule_id, t.nominal_at, t.seq, t.shard, t.reason <> 0 AS stopped, `+isAside+` AS aside, COALESCE(t.replayed_from, 0) AS "from",
			COALESCE(s.max_attempts, r.max_attempts) AS max_attempts,
			COALESCE(s.max_lateness_s, r.max_lateness_s) AS max_lateness_s, COALESCE(s.on_expired, r.on_expired) AS on_expired, w.defaults
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+theTick+` ON t.state = $8 AND t.attempt = i.attempt
		LEFT JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id AND s.version = t.version
		LEFT JOIN revision r ON r.tenant_id = t.tenant_id AND r.schedule_id = t.schedule_id AND r.version = t.version
		LEFT JOIN workflow w ON w.tenant_id = t.tenant_id AND w.name = COALESCE(s.workflow, r.workflow)
		FOR UPDATE OF t`,
		tenant, keys.ids, keys.at, keys.seqs, keys.tries, keys.from, keys.through, int16(Running)) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[underWay])
	if err != nil {
		return fmt.Errorf("read failed ticks: %w", err)
	}
	var b pgx.Batch
	var dead keyArrays
	var retries []hold
	for _, u := range found {
		k := ident.TickKey{Schedule: u.ScheduleID, At: u.NominalAt.UTC(), Seq: u.Seq}
		e := bad[k]
		due, again := u.retryAt(e, now)
		if !e.unsent {
			b.Queue(`
				INSERT INTO attempt (tenant_id, schedule_id, nominal_at, seq, attempt, started_at, ended_at, outcome, status, error, worker)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
				ON CONFLICT DO NOTHING`,
				tenant, k.Schedule, k.At, k.Seq, e.attempt, e.started, now, e.outcome, e.status, e.err, e.worker)
		}
		if again && sabotage.NoRetry.On() {
			ended[k] = Running
			continue
		}
		if again {
			retries = append(retries, hold{try: try{TickKey: k, Attempt: e.attempt + 1}, shard: u.Shard, why: "retry", due: due})
			b.Queue(`UPDATE tick SET attempt = attempt + 1 WHERE `+byKey,
				tenant, k.Schedule, k.At, k.Seq)
			ended[k] = Running
			continue
		}
		total := of(states, k.Schedule)
		state, count := Failed, &total.failed
		if e.outcome == cancelled || u.Stopped {
			state, count = Cancelled, &total.cancelled
		} else {
			dead.add(k, e.attempt)
		}
		total.count(count, u.Aside)
		ended[k] = state
		b.Queue(`UPDATE tick SET state = $5, ended_at = $6, error = $7 WHERE `+byKey,
			tenant, k.Schedule, k.At, k.Seq, int16(state), now, e.err)
	}
	queueHolds(&b, tenant, retries)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("write failed ticks: %w", err)
	}
	return bury(ctx, tx, tenant, dead)
}

const (
	firstBackoff   = 5 * time.Second
	longestBackoff = time.Hour
)

// backoff is the wait before the try after attempt: full jitter in [0, min(1 h, 5 s · 2ⁿ)], n failures before it.
func backoff(attempt int16, draw func(n int64) int64) time.Duration {
	most := longestBackoff
	if n := attempt - 1; n < 10 {
		most = min(most, firstBackoff<<n)
	}
	return time.Duration(draw(int64(most) + 1))
}

// retryAt returns when a failed attempt's tick is tried again: never past its attempts or its greatest lateness. Where this
// program cannot read the defaults of the workflow, the tick is not ended: its next delivery waits for one that can.
func (u *underWay) retryAt(e *ending, now time.Time) (due time.Time, again bool) {
	if e.final || u.Stopped || e.outcome == cancelled {
		return due, false
	}
	terms, err := policy.Resolve(policy.Stored{MaxAttempts: u.MaxAttempts, MaxLateness: u.MaxLateness, OnExpired: u.OnExpired}, u.Defaults)
	if err != nil {
		return now.Add(newerWait), true
	}
	if e.attempt-u.From >= terms.MaxAttempts {
		return due, false
	}
	due = now.Add(max(backoff(e.attempt-u.From, rand.Int64N), e.retryAfter))
	if e.outcome == lost {
		due = now
	}
	if u.Aside { // it was asked for however late it is
		return due, true
	}
	return due, !terms.Expired(u.NominalAt, due)
}

// dropAnswers forgets the answers that were awaited and have come.
func dropAnswers(ctx context.Context, tx pgx.Tx, tenant tenants.ID, answered []*ending) error {
	if len(answered) == 0 {
		return nil
	}
	var keys keyArrays
	for _, e := range answered {
		keys.add(e.TickKey, e.attempt)
	}
	_, err := tx.Exec(ctx, `
		DELETE FROM held h
		USING unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		WHERE `+inKeys("h")+` AND h.why = 'answer'`,
		tenant, keys.ids, keys.at, keys.seqs)
	return err
}

// countEnded updates the states of schedules whose ticks ended, and has those paused that failed too often in a row.
func (d *Dispatch) countEnded(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, ended map[ident.TickKey]State, states map[int64]*tally) error {
	if len(states) == 0 {
		return nil
	}
	var ids []int64
	var good, bad, gone, own, aside []int32
	var bytes []int64
	for _, id := range slices.Sorted(maps.Keys(states)) { // so that two that end ticks of the same schedules lock them in one order
		t := states[id]
		ids, good, bad, gone = append(ids, id), append(good, t.succeeded), append(bad, t.failed), append(gone, t.cancelled)
		own, aside = append(own, t.succeeded+t.failed+t.cancelled-t.aside), append(aside, t.aside)
		bytes = append(bytes, t.bytes)
	}
	rows, err := tx.Query(ctx, `
		WITH used AS (`+endedUse("$1", "$8::date", `(
			SELECT id, good, bad, gone, 0 AS skipped, bytes
			FROM unnest($2::bigint[], $3::int[], $4::int[], $7::int[], $9::bigint[]) AS n (id, good, bad, gone, bytes)
		) i`)+`)`+state.End, tenant, ids, good, bad, own, aside, gone, dayOf(now), bytes)
	if err != nil {
		return fmt.Errorf("count ended ticks: %w", err)
	}
	var id int64
	var failures int32
	var free bool
	var delay *time.Time
	var failing, released []int64
	var passed []ident.TickKey
	if _, err := pgx.ForEachRow(rows, []any{&id, &failures, &free, &delay}, func() error {
		if delay != nil {
			k := ident.TickKey{Schedule: id, At: delay.UTC()}
			if state, did := ended[k]; did && state != Running {
				passed = append(passed, k)
			}
		}
		if failures > 0 {
			failing = append(failing, id)
		}
		if free {
			released = append(released, id)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("count ended ticks: %w", err)
	}
	if err := d.rearm(ctx, tx, tenant, now, passed); err != nil {
		return err
	}
	if err := d.release(ctx, tx, tenant, now, released); err != nil {
		return err
	}
	return d.markFailing(ctx, tx, tenant, failing)
}

// markFailing finds the schedules that are to be paused after so many failures in a row. They are paused in a
// transaction of their own, which takes the locks that a pause needs: should this process end first, the next failure
// finds them again.
func (d *Dispatch) markFailing(ctx context.Context, tx pgx.Tx, tenant tenants.ID, failing []int64) error {
	if len(failing) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `
		SELECT s.id, s.pause_after_failures, w.defaults, st.failures
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE s.tenant_id = $1 AND s.id = ANY($2) AND s.status = 'active'`, tenant, failing)
	if err != nil {
		return fmt.Errorf("look for failing schedules: %w", err)
	}
	var id int64
	var own *int32
	var defaults []byte
	var failures int32
	_, err = pgx.ForEachRow(rows, []any{&id, &own, &defaults, &failures}, func() error {
		terms, err := policy.Resolve(policy.Stored{PauseAfterFailures: own}, defaults)
		if err != nil {
			return nil // the next failure finds it, by a program that can read them
		}
		if most := terms.PauseAfterFailures; most > 0 && failures >= most {
			select {
			case d.failing <- failingSchedule{tenant, id, failures}:
			default: // too many at once: the next failure finds it again
			}
		}
		return nil
	})
	return err
}

// failingSchedule is a schedule that is to be paused.
type failingSchedule struct {
	tenant   tenants.ID
	id       int64
	failures int32
}

// pauseFailing pauses failing schedules until ctx ends.
func (d *Dispatch) pauseFailing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-d.failing:
			if err := d.Pause(ctx, f.tenant, f.id, fmt.Sprintf("paused after %d failed ticks in a row", f.failures)); err != nil && ctx.Err() == nil {
				d.Log.Error("cannot pause a failing schedule", "tenant", f.tenant, "error", err)
			}
		}
	}
}
