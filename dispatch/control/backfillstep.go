package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const (
	backfillAhead = 50  // ticks of a backfill that are not ended at a time, with buffer_all
	backfillRate  = 100 // ticks a second, with allow_all
	backfillEvery = time.Second
)

// backfillStep makes the next ticks of a backfill, as many as backfillAhead or backfillRate allow. It stops at the first time that the
// sweep has not handled yet, so that no time gets a tick from both.
func (bs *Backfills) backfillStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var p record.BackfillParams
	var next time.Time
	stepped, err := op.Read(&p, &next)
	if err != nil {
		return false, err
	}
	if !stepped {
		next = p.From
	}
	id, _ := bs.ids.ParseSchedule(p.ScheduleID)
	f, err := bs.lockFill(ctx, tx, op.Tenant, id)
	if err != nil {
		return false, err
	}
	if f == nil { // the schedule was deleted meanwhile
		op.Result = map[string]string{"ended": "the schedule was deleted"}
		return true, nil
	}
	if f.Defaults == nil {
		return false, fault.Conflict("workflow_deleted", "the workflow %q is gone", f.Workflow)
	}
	op.WaitUntil = op.Now.Add(backfillEvery)
	room := backfillRate
	if p.Overlap != "allow_all" {
		room = backfillAhead - f.Aside - f.AsideBuffered
	}
	if f.Rate != nil {
		room = min(room, int(*f.Rate))
	}
	if f.Stopped || room <= 0 {
		return false, op.Keep(next)
	}
	timing, err := bs.backfillTiming(ctx, tx, op.Tenant, &f.backfilled)
	if err != nil {
		return false, err
	}
	part := filled{timing: timing, times: nominalTimes(timing, next, p.To, room), overlap: p.Overlap}
	for i, one := range part.times {
		if f.pending(one.At) { // the sweep makes the tick of this time soon
			part.times, part.next = part.times[:i], one.At
			return false, bs.fill(ctx, tx, op, f, part)
		}
	}
	if len(part.times) < room {
		part.next = p.To
		return true, bs.fill(ctx, tx, op, f, part)
	}
	part.next = part.times[len(part.times)-1].At.Add(time.Second)
	return false, bs.fill(ctx, tx, op, f, part)
}

// filled is what one step of a backfill makes: a tick for each of some nominal times.
type filled struct {
	timing  *calendar.Timing
	times   []calendar.Tick
	next    time.Time // where the next step continues
	overlap string
}

// filling is a schedule that is locked for a step of a backfill: nothing sweeps or opens a tick of it meanwhile.
type filling struct {
	backfilled
	state.Counters
	FromAt   *time.Time // since when the schedule is a member of its cohort; nil: it is not one
	unopened []time.Time
}

// lockFill locks a schedule against the sweep and against opening. It returns nil if there is no such schedule.
func (bs *Backfills) lockFill(ctx context.Context, tx pgx.Tx, tenant tenants.ID, id int64) (*filling, error) {
	var shard int16
	err := tx.QueryRow(ctx, `SELECT shard FROM schedule WHERE tenant_id = $1 AND id = $2`, tenant, id).Scan(&shard)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	var b pgx.Batch
	cohorts.ShareShard(&b, shard)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("lock shard %d: %w", shard, err)
	}
	rows, _ := tx.Query(ctx, backfilledFrom+` WHERE s.tenant_id = $1 AND s.id = $2 FOR SHARE OF s`, tenant, id) // CollectExactlyOneRow reports the error
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[backfilled])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	f := &filling{backfilled: s}
	if f.Counters, err = state.Lock(ctx, tx, state.Schedule{Tenant: tenant, ID: id}); err != nil {
		return nil, err
	}
	err = tx.QueryRow(ctx, `
		SELECT (SELECT m.from_at FROM schedule s JOIN member m ON m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id
			WHERE s.tenant_id = $1 AND s.id = $2)`, tenant, id).Scan(&f.FromAt)
	if err != nil {
		return nil, fmt.Errorf("read membership: %w", err)
	}
	f.unopened, err = bs.unopenedTimes(ctx, tx, shard, tenant, id)
	return f, err
}

// unopenedTimes returns the nominal times of a schedule that are in chunks which are not open yet.
func (bs *Backfills) unopenedTimes(ctx context.Context, tx pgx.Tx, shard int16, tenant tenants.ID, id int64) (times []time.Time, err error) {
	floor, stuck := bs.unopened.From(bs.horizon)
	rows, err := tx.Query(ctx, `
		SELECT nominal_at, items
		FROM `+chunk.UnopenedOf("$1", "$2", "$4", "$5")+` k
		WHERE kind = 0 AND first_id <= $3 AND last_id >= $3`, shard, tenant, id, floor, stuck)
	if err != nil {
		return nil, fmt.Errorf("look for unopened chunks: %w", err)
	}
	var at time.Time
	var items []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &items}, func() error {
		groups, err := chunk.UnpackGroups(at, items)
		for _, g := range groups {
			if slices.Contains(g.IDs, id) {
				times = append(times, g.At)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for unopened chunks: %w", err)
	}
	return times, nil
}

// pending reports whether the sweep may still make the tick of a nominal time, or an unopened chunk holds it.
func (f *filling) pending(at time.Time) bool {
	if f.SeenAt != nil && !at.After(*f.SeenAt) {
		return false
	}
	for _, one := range f.unopened {
		if one.Equal(at) {
			return true
		}
	}
	return f.FromAt != nil && !at.Before(*f.FromAt)
}

// fill makes ticks of a backfill, and stores where the next step continues.
func (bs *Backfills) fill(ctx context.Context, tx pgx.Tx, op *operations.Operation, f *filling, part filled) error {
	op.Done += int64(len(part.times))
	if err := op.Keep(part.next); err != nil || len(part.times) == 0 {
		return err
	}
	terms, err := policy.Resolve(policy.Stored{Overlap: f.Overlap}, f.Defaults)
	if err != nil {
		return err
	}
	made, err := insertFilled(ctx, tx, op, f, part.timing, part.times)
	if err != nil {
		return err
	}
	bs.sweep.ChargeWorkflow(op.Tenant, f.Workflow, len(made))
	op.Count("made", int64(len(made)))
	op.Count("existing", int64(len(part.times)-len(made)))
	free := len(made) // how many run at once
	if part.overlap != "allow_all" {
		free = 0
		idle := f.Live+f.Buffered == 0 || terms.Overlap == "allow_all"
		if idle && f.Aside+f.AsideBuffered == 0 {
			free = min(1, len(made))
		}
	}
	var b pgx.Batch
	record.QueueIndex(&b, op.Tenant, made)
	record.QueueUse(&b, op.Tenant, op.Now, made)
	var waits record.Keys
	for i := range made {
		k := made[i].RowKey()
		if i >= free {
			waits.Add(k, 1)
			continue
		}
		record.QueueDelayed(&b, op.Tenant, f.Shard, record.Try{TickKey: k, Attempt: 1}, "released", op.Now)
	}
	if free > 0 {
		b.Queue(`
			UPDATE tick
			SET state = $6
			WHERE tenant_id = $1 AND schedule_id = $2 AND nominal_at = ANY($3) AND seq = 0 AND nominal_at BETWEEN $4 AND $5`,
			op.Tenant, f.ID, timesOf(made[:free]), made[0].NominalAt, made[free-1].NominalAt, int16(record.Running))
	}
	b.Queue(`
		INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq, aside)
		SELECT $1, id, at, seq, true
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS n (id, at, seq)`, op.Tenant, waits.IDs, waits.At, waits.Seqs)
	state.Backfill(&b, state.Schedule{Tenant: op.Tenant, ID: f.ID}, free, len(made)-free)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("send ticks of a backfill: %w", err)
	}
	return cohorts.WakeSweep(ctx, tx, f.Shard)
}

func timesOf(ticks []record.Tick) []time.Time {
	times := make([]time.Time, len(ticks))
	for i := range ticks {
		times[i] = ticks[i].NominalAt
	}
	return times
}

// insertFilled records ticks of a backfill as scheduled, and returns them. It leaves out times that have a tick already.
func insertFilled(ctx context.Context, tx pgx.Tx, op *operations.Operation, f *filling, timing *calendar.Timing, times []calendar.Tick) ([]record.Tick, error) {
	ticks := map[int64]record.Tick{}
	at, last, notes := make([]time.Time, len(times)), make([]*time.Time, len(times)), make([]int16, len(times))
	for i, one := range times {
		at[i], notes[i] = one.At, int16(one.DST)
		if prev, ok := timing.Prev(one.At); ok {
			last[i] = &prev.At
		}
		ticks[one.At.Unix()] = record.Tick{ScheduleID: f.ID, NominalAt: one.At, Workflow: f.Workflow}
	}
	rows, _ := tx.Query(ctx, `
		INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, cohort_id, last_at, fired_at, shard, attempt, state, reason, cause, dst)
		SELECT $1, $2, n.at, 0, $3, 0, $4, n.last_at, $5, $6, 1, $7, 0, $8, n.dst
		FROM unnest($9::timestamptz[], $10::timestamptz[], $11::smallint[]) AS n (at, last_at, dst)
		WHERE NOT EXISTS (
			SELECT FROM dead_letter l
			WHERE `+record.KeyIs("l", "$1", "$2", "n.at", "0")+`)
		ON CONFLICT DO NOTHING
		RETURNING nominal_at`,
		op.Tenant, f.ID, f.Version, f.CohortID, op.Now, f.Shard, int16(record.Scheduled), int16(record.Backfill), at, last, notes) // CollectRows reports the error
	inserted, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, fmt.Errorf("record ticks of a backfill: %w", err)
	}
	made := make([]record.Tick, 0, len(inserted))
	for _, one := range inserted {
		made = append(made, ticks[one.Unix()])
	}
	slices.SortFunc(made, func(a, b record.Tick) int { return a.NominalAt.Compare(b.NominalAt) })
	return made, nil
}
