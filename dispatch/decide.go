package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/sabotage"
)

// decided is what became of one schedule of a chunk. The key is told where somebody asks for it.
type decided struct {
	Ord        int32
	Version    int32
	Key        *string
	Fate       fate
	Cancels    bool
	Reason     Reason
	PrevAt     *time.Time
	LastAt     *time.Time
	UntilAt    *time.Time
	DelayAt    *time.Time
	Occurrence int64
	Payload    *string
	Queue      *string
	Priority   *int16
	Timeout    *int32
	Attempts   *int16
}

// tooSoon is a tick at n.at that comes too soon after the last one that was handed out before its schedule's zone was changed:
// one that fires once a day does so again after 20 to 48 hours.
const tooSoon = `(st.rezoned_at IS NOT NULL AND st.last_at <= st.rezoned_at AND st.rezoned_at < n.at AND n.at < st.last_at + interval '20 hours')`

// Of a timed tick, at n.at: as of any other, but that one which a client asked to leave out is not handed out.
var (
	unlessSkipped = strings.NewReplacer("n.reason = 0", "n.reason = 0 AND (n.at = ANY (st.skips)) IS NOT TRUE AND "+tooSoon+" IS NOT TRUE")
	timedHanded   = unlessSkipped.Replace(handed)
	timedCounted  = unlessSkipped.Replace(counted)
)

// untilAt is the last nominal time of a schedule s, for a tick at a moment: nothing more comes of one that is no
// member any more. It is looked up for those alone that have a limit of ticks.
func untilAt(moment string) string {
	return `CASE WHEN s.ticks_left IS NOT NULL THEN COALESCE((
					SELECT m.until_at
					FROM member m
					WHERE m.cohort_id = s.cohort_id AND m.spread = s.spread AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id), ` + moment + `) END`
}

// Flags of an item, as decide reads them.
const (
	forcedItem = 1 << iota
	quietItem
)

// decide settles each tick and updates the states of its schedules, in one statement: it joins the schedules with what
// their workflows say, and the state with what both say. A tick is handed out unless there is a reason not to; one of
// a schedule whose state has seen its time already is not made again.
func (d *Dispatch) decide(ctx context.Context, tx pgx.Tx, all []*opened, items []item) error {
	w := termsOf(all)
	n := len(items)
	owners, ids, at, missed := make([]int32, n), make([]int64, n), make([]time.Time, n), make([]int32, n)
	flows, whys, flags := make([]int16, n), make([]int16, n), make([]int16, n)
	for i := range items {
		it := &items[i]
		owners[i], ids[i], at[i], missed[i] = int32(it.of.chunk.TenantID), it.id, it.At, int32(it.Missed)
		flows[i] = int16(w.first[it.of] + it.Workflow)
		switch {
		case it.Excluded:
			whys[i] = int16(Excluded)
		case it.Drop:
			whys[i] = int16(Missed)
		}
		if it.Forced {
			flags[i] |= forcedItem
		}
		if it.Quiet {
			flags[i] |= quietItem
		}
	}
	// What the schedules say is not merged into the rest (OFFSET 0): its reason would be found anew wherever it is named.
	rows, err := tx.Query(ctx, `
		UPDATE schedule_state st
		SET seen_at = CASE WHEN `+timedHanded+` THEN NULL ELSE n.at END,
			missed = st.missed + n.missed,
			last_tick_at = NULL,
			last_seq = NULL,
			prev_at = st.last_at,
			last_at = CASE WHEN `+timedHanded+` THEN n.at ELSE st.last_at END,
			occurrence = st.occurrence + CASE WHEN `+timedHanded+` THEN 1 ELSE 0 END,
			live_at = CASE WHEN `+timedHanded+` THEN NULL ELSE st.live_at END,
			live_seq = CASE WHEN `+timedHanded+` THEN NULL ELSE st.live_seq END,
			`+timedCounted+`
		FROM (
			SELECT i.ord, i.at, i.missed, i.owner, i.id, s.version, s.queue, s.priority, s.timeout_s, s.max_attempts,
				CASE WHEN ($8::boolean[])[i.flow] OR $18::boolean THEN s.key END AS key,
				CASE WHEN ($8::boolean[])[i.flow] THEN s.payload END AS payload,
				COALESCE(s.overlap, ($9::text[])[i.flow]) AS overlap,
				`+untilAt("i.at")+` AS until_at,
				CASE
					WHEN i.why <> 0 THEN i.why
					WHEN NOT ($10::boolean[])[i.flow] THEN $13::smallint
					WHEN ($11::boolean[])[i.flow] OR s.status = 'paused' AND (s.paused_until IS NULL OR s.paused_until > i.at) THEN $14::smallint
					WHEN i.flags & 1 = 0 AND $12::timestamptz - i.at > make_interval(secs => COALESCE(s.max_lateness_s, ($20::int[])[i.flow]))
						AND COALESCE(s.on_expired, ($21::text[])[i.flow]) = 'skip' THEN $15::smallint
					WHEN i.flags & 2 <> 0 THEN $16::smallint
					ELSE 0::smallint
				END AS reason
			FROM unnest($1::int[], $2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $6::smallint[], $7::smallint[])
				WITH ORDINALITY AS i (owner, id, at, missed, flow, why, flags, ord)
			JOIN schedule s ON s.tenant_id = i.owner AND s.id = i.id
			OFFSET 0
		) n
		WHERE st.tenant_id = n.owner AND st.schedule_id = n.id AND (COALESCE(st.seen_at, st.last_at) < n.at) IS NOT FALSE
		RETURNING n.ord::int, n.version, n.key, st.fate, n.overlap = 'cancel_other' AS cancels,
			CASE
				WHEN n.reason <> 0 OR st.fate <> 2 THEN n.reason
				WHEN n.at = ANY (st.skips) THEN $17::smallint
				WHEN `+tooSoon+` THEN $22::smallint
				ELSE $19::smallint
			END AS reason,
			st.prev_at, st.last_at, n.until_at, st.delay_at, st.occurrence, n.payload, n.queue, n.priority, n.timeout_s, n.max_attempts`,
		owners, ids, at, missed, flows, whys, flags, w.push, w.overlap, w.known, w.halted, all[0].now,
		int16(NoWorkflow), int16(Paused), int16(Expired), int16(QuietHours), int16(Requested), d.OnFired != nil, int16(Overlap),
		w.maxLateness, w.onExpired, int16(Superseded))
	if err != nil {
		return fmt.Errorf("decide ticks: %w", err)
	}
	for _, o := range all {
		o.ticks = make([]tick, 0, o.items)
	}
	var one decided
	_, err = pgx.ForEachRow(rows, one.fields(), func() error {
		it := &items[one.Ord-1]
		it.decided = true
		d.settle(it, &one)
		return nil
	})
	if err != nil {
		return fmt.Errorf("decide ticks: %w", err)
	}
	return nil
}

// fields are where a row that decide returns is read into. A pointer among them is made anew for each row.
func (one *decided) fields() []any {
	return []any{
		&one.Ord, &one.Version, &one.Key, &one.Fate, &one.Cancels, &one.Reason, &one.PrevAt, &one.LastAt, &one.UntilAt, &one.DelayAt,
		&one.Occurrence, &one.Payload, &one.Queue, &one.Priority, &one.Timeout, &one.Attempts,
	}
}

// settle makes the tick of what was decided, and sends it on its way.
func (d *Dispatch) settle(it *item, one *decided) {
	o, r := it.of, &it.of.routes[it.Workflow]
	c := o.chunk
	t := tick{
		ScheduleID: it.id, NominalAt: it.At, Version: one.Version, MissedCount: int32(it.Missed),
		CohortID: &it.Cohort, LastAt: one.LastAt, UntilAt: one.UntilAt, FiredAt: o.now, Shard: c.Shard, Attempt: 1,
		State: Running, Cause: BySchedule, DST: it.DST, workflow: r.name,
	}
	if it.Late {
		t.Cause = CatchUp
	}
	switch one.Fate {
	case skipped:
		t.State, t.Reason, t.EndedAt = Skipped, one.Reason, &o.now
		o.ticks = append(o.ticks, t)
		if one.DelayAt != nil {
			o.passed = append(o.passed, t.key())
		}
		return
	case buffered:
		t.State = Scheduled
		o.ticks, o.buffer = append(o.ticks, t), append(o.buffer, t.key())
		if one.Cancels {
			o.cancels = append(o.cancels, it.id)
		}
		return
	}
	t.LastAt, t.Occurrence = one.PrevAt, new(one.Occurrence)
	if sabotage.LastIsItself.On() {
		t.LastAt = one.LastAt
	}
	if r.endpoint != nil {
		t.ChunkID = &c.ID
	}
	o.ticks = append(o.ticks, t)
	if d.OnFired != nil {
		o.fired = append(o.fired, Fired{c.TenantID, r.name, or(one.Key, ""), it.At, o.now})
	}
	d.place(o, &t, r, or(one.Key, ""), one.Payload, one.Queue, one.Priority, one.Timeout, one.Attempts)
}

func or[T any](own *T, inherited T) T {
	if own != nil {
		return *own
	}
	return inherited
}

func seconds[N int16 | int32](n N) time.Duration { return time.Duration(n) * time.Second }

// cancelDeleted records the ticks of schedules that were deleted after they were swept.
func cancelDeleted(ctx context.Context, tx pgx.Tx, items []item) error {
	var owners []int32
	var left []int64
	byID := map[int64]*item{}
	for i := range items {
		if it := &items[i]; !it.decided {
			owners, left, byID[it.id] = append(owners, int32(it.of.chunk.TenantID)), append(left, it.id), it
		}
	}
	if len(left) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `
		SELECT r.schedule_id, r.version
		FROM unnest($1::int[], $2::bigint[]) AS i (owner, id)
		JOIN revision r ON r.tenant_id = i.owner AND r.schedule_id = i.id AND r.deleted`, owners, left)
	if err != nil {
		return fmt.Errorf("look for deleted schedules: %w", err)
	}
	var id int64
	var version int32
	_, err = pgx.ForEachRow(rows, []any{&id, &version}, func() error {
		it := byID[id]
		o := it.of
		o.ticks = append(o.ticks, tick{
			ScheduleID: id, NominalAt: it.At, Version: version, MissedCount: int32(it.Missed), CohortID: &it.Cohort,
			FiredAt: o.now, EndedAt: &o.now, Shard: o.chunk.Shard, Attempt: 0,
			State: Cancelled, Cause: BySchedule, DST: it.DST, workflow: o.routes[it.Workflow].name,
		})
		return nil
	})
	return err
}
