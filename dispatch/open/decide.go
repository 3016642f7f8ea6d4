package open

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/jackc/pgx/v5"
)

// decided is the decision about one schedule of a chunk.
type decided struct {
	Ord        int32
	Version    int32
	content    record.Content // empty if the tick is not pushed; the key also counts if somebody listens to fired ticks
	Decision   state.Decision
	Cancels    bool
	Reason     record.Reason
	PrevAt     *time.Time
	LastAt     *time.Time
	UntilAt    *time.Time
	DelayAt    *time.Time
	Occurrence int64
	stated     policy.Stored // of its delivery
	UpdatedAt  time.Time     // when the version was written
}

// spans are items, ascending by id, as ranges of consecutive ids of one tenant. The schedules of a bulk batch in one shard form such a
// range; one descent of the index finds all schedules of a range. The other values of the items are in parallel arrays, in the order of
// the items. Arrays of a query count from 1.
type spans struct {
	owners []int32
	lo, hi []int64
	before []int64 // an item's place is its id less this
}

func spansOf(items []item) (r spans) {
	for i := range items {
		owner, id := int32(items[i].of.chunk.TenantID), items[i].id
		if n := len(r.hi); n > 0 && r.owners[n-1] == owner && r.hi[n-1]+1 == id {
			r.hi[n-1] = id
			continue
		}
		r.owners, r.lo, r.hi, r.before = append(r.owners, owner), append(r.lo, id), append(r.hi, id), append(r.before, id-int64(i)-1)
	}
	return r
}

// reason returns why an item is skipped independently of its schedule; 0 if it is not.
func (it *item) reason() record.Reason {
	switch {
	case it.Excluded:
		return record.Excluded
	case it.Drop:
		return record.Missed
	case !it.of.routes[it.Workflow].known:
		return record.NoWorkflow
	case it.of.stopped:
		return record.Paused
	}
	return 0
}

// decideTicks decides ticks and counts them in their schedules' states. OFFSET 0 keeps the planner from merging the subqueries: otherwise
// it would compute the reason again at each use.
var decideTicks = state.Decide + `
	FROM (
		SELECT s.ord, ($5::timestamptz[])[s.ord] AS at, ($7::int[])[s.ord] AS missed, s.tenant_id AS owner, s.id, s.version, s.queue, s.priority, s.timeout_s, s.max_attempts,
			CASE WHEN ($11::boolean[])[($8::smallint[])[s.ord]] OR $16::boolean THEN s.key ELSE '' END AS key,
			CASE WHEN ($11::boolean[])[($8::smallint[])[s.ord]] THEN s.payload END AS payload,
			CASE WHEN ($11::boolean[])[($8::smallint[])[s.ord]] THEN s.subject END AS subject,
			CASE WHEN ($11::boolean[])[($8::smallint[])[s.ord]] AND s.labels <> '{}' THEN s.labels::text END AS labels,
			` + policy.SQL("s.overlap", "($12::text[])[($8::smallint[])[s.ord]]") + ` AS overlap,
			` + record.UntilAt("($5::timestamptz[])[s.ord]") + ` AS until_at,
			CASE
				WHEN ($9::smallint[])[s.ord] <> 0 THEN ($9::smallint[])[s.ord]
				WHEN s.status = 'paused' AND (s.paused_until IS NULL OR s.paused_until > ($5::timestamptz[])[s.ord]) THEN $17::smallint
				WHEN ($6::bigint[])[s.ord] > 1000000 * ` + policy.SQL("s.max_lateness_s", "($13::int[])[($8::smallint[])[s.ord]]") + `::bigint
					AND ` + policy.SQL("s.on_expired", "($14::text[])[($8::smallint[])[s.ord]]") + ` = 'skip' THEN $18::smallint
				WHEN ($10::boolean[])[s.ord] THEN $19::smallint
				ELSE $15::smallint
			END AS reason,
			s.updated_at
		FROM (
			SELECT (s.id - r.before)::int AS ord, s.*
			FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[]) AS r (owner, lo, hi, before)
			CROSS JOIN LATERAL (
				SELECT tenant_id, id, version, queue, priority, timeout_s, max_attempts, key, subject, labels, payload, overlap, ticks_left, cohort_id, phase,
					status, paused_until, max_lateness_s, on_expired, updated_at
				FROM schedule
				WHERE tenant_id = r.owner AND id BETWEEN r.lo AND r.hi
				ORDER BY id
			) s
			OFFSET 0
		) s
		OFFSET 0
	) n
	WHERE ` + state.Undecided + `
	RETURNING n.ord, n.version, n.key, st.decision, n.overlap = 'cancel_other' AS cancels,
		CASE
			WHEN n.reason <> 0 OR st.decision <> 2 THEN n.reason
			WHEN ` + state.Requested + ` THEN $20::smallint
			WHEN ` + state.TooSoon + ` THEN $22::smallint
			ELSE $21::smallint
		END AS reason,
		st.prev_at, st.last_at, n.until_at, st.delay_at, st.occurrence, n.payload, n.subject, n.labels, n.queue, n.priority, n.timeout_s, n.max_attempts, n.updated_at`

// decide decides each tick and updates the states of the schedules, in one statement that joins schedules, workflow terms and states. A
// tick is handed out unless there is a reason to skip or buffer it. It makes no tick for a time that the state has already recorded. The
// items are ascending by id.
func (o *Opener) decide(ctx context.Context, tx pgx.Tx, all []*plan, items []item) error {
	w := termsOf(all)
	r := spansOf(items)
	n := len(items)
	at, ages, missed := make([]time.Time, n), make([]int64, n), make([]int32, n)
	flows, whys, quiet := make([]int16, n), make([]int16, n), make([]bool, n)
	for i := range items {
		it := &items[i]
		at[i], missed[i], quiet[i] = it.At, int32(it.Missed), it.Quiet
		flows[i], whys[i] = int16(w.first[it.of]+it.Workflow), int16(it.reason())
		if !it.Forced { // a forced tick never counts as late
			ages[i] = all[0].now.Sub(it.At).Microseconds()
		}
	}
	for _, p := range all {
		p.ticks = make([]record.Tick, 0, p.items)
	}
	var one decided
	var b pgx.Batch
	// The planner cannot know how many schedules a range has, and would rather read all states with a hash or merge join.
	b.Queue(`SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`)
	b.Queue(decideTicks,
		r.owners, r.lo, r.hi, r.before, at, ages, missed, flows, whys, quiet, w.push, w.overlap, w.maxLateness, w.onExpired, int16(0), o.observers.onFired != nil,
		int16(record.Paused), int16(record.Expired), int16(record.QuietHours), int16(record.Requested), int16(record.Overlap), int16(record.Superseded)).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, one.fields(), func() error {
			it := &items[one.Ord-1]
			it.decided = true
			o.settle(it, &one)
			return nil
		})
		return err
	})
	b.Queue(`SELECT set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)`)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("decide ticks: %w", err)
	}
	return nil
}

// fields returns the scan targets of a row of decideTicks. Scanning allocates a new value for each pointer.
func (one *decided) fields() []any {
	return []any{
		&one.Ord, &one.Version, &one.content.Key, &one.Decision, &one.Cancels, &one.Reason, &one.PrevAt, &one.LastAt, &one.UntilAt, &one.DelayAt,
		&one.Occurrence, &one.content.Payload, &one.content.Subject, &one.content.Labels, &one.stated.Queue, &one.stated.Priority, &one.stated.Timeout, &one.stated.MaxAttempts, &one.UpdatedAt,
	}
}

// firedAt returns when a tick fires, given the time of the last change of its schedule. It is the clock of the opening. The opening reads
// the clock before the schedule, so a change may be later than that clock; then it is the time of the change.
func (p *plan) firedAt(written time.Time) time.Time {
	if written.After(p.now) {
		return written.UTC()
	}
	return p.now
}

// settle makes the tick of a decision, and adds it to the plan.
func (o *Opener) settle(it *item, one *decided) {
	p, r := it.of, &it.of.routes[it.Workflow]
	c := p.chunk
	t := record.Tick{
		ScheduleID: it.id, NominalAt: it.At, Version: one.Version, MissedCount: int32(it.Missed),
		CohortID: &it.Cohort, LastAt: one.LastAt, UntilAt: one.UntilAt, FiredAt: p.firedAt(one.UpdatedAt), Shard: c.Shard, Attempt: 1,
		State: record.Running, Cause: record.BySchedule, DST: it.DST, Workflow: r.name,
		Trace: p.trace.Child().Stored(),
	}
	if it.Late {
		t.Cause = record.CatchUp
	}
	switch one.Decision {
	case state.Skipped:
		p.skip(&t, one.Reason, one.DelayAt != nil)
		return
	case state.Buffered:
		p.buffer(&t, one.Cancels)
		return
	}
	t.LastAt, t.Occurrence = one.PrevAt, new(one.Occurrence)
	if sabotage.LastIsItself.On() {
		t.LastAt = one.LastAt
	}
	if r.endpoint != nil {
		t.ChunkID = &c.ID
	}
	p.ticks = append(p.ticks, t)
	if o.observers.onFired != nil {
		p.fired = append(p.fired, Fired{c.TenantID, r.name, one.content.Key, it.At, t.FiredAt})
	}
	o.deliver(p, &t, r, one.content, one.stated)
}

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
		SELECT r.schedule_id, r.version, r.ended_at
		FROM unnest($1::int[], $2::bigint[]) AS i (owner, id)
		JOIN revision r ON r.tenant_id = i.owner AND r.schedule_id = i.id AND r.deleted`, owners, left)
	if err != nil {
		return fmt.Errorf("look for deleted schedules: %w", err)
	}
	var id int64
	var version int32
	var deleted time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &version, &deleted}, func() error {
		it := byID[id]
		p := it.of
		fired := p.firedAt(deleted)
		p.ticks = append(p.ticks, record.Tick{
			ScheduleID: id, NominalAt: it.At, Version: version, MissedCount: int32(it.Missed), CohortID: &it.Cohort,
			FiredAt: fired, EndedAt: &fired, Shard: p.chunk.Shard, Attempt: 0,
			State: record.Cancelled, Cause: record.BySchedule, DST: it.DST, Workflow: p.routes[it.Workflow].name,
		})
		return nil
	})
	return err
}
