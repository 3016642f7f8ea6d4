package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// decided is what became of one schedule of a chunk, in the order of the columns that decide returns: to find them by name
// costs something for each row.
type decided struct {
	Ord        int32
	ScheduleID int64
	Version    int32
	Key        string
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

// tooSoon is a tick at $2 that comes too soon after the last one that was handed out before its schedule's zone was changed:
// one that fires once a day does so again after 20 to 48 hours.
const tooSoon = `(st.rezoned_at IS NOT NULL AND st.last_at <= st.rezoned_at AND st.rezoned_at < $2 AND $2 < st.last_at + interval '20 hours')`

// Of a timed tick, at $2: as of any other, but that one which a client asked to leave out is not handed out.
var (
	unlessSkipped = strings.NewReplacer("n.reason = 0", "n.reason = 0 AND ($2 = ANY (st.skips)) IS NOT TRUE AND "+tooSoon+" IS NOT TRUE")
	timedHanded   = unlessSkipped.Replace(handed)
	timedCounted  = unlessSkipped.Replace(counted)
)

// untilAt is the last nominal time of a schedule s of tenant $1, for a tick at a moment: nothing more comes of one that is no
// member any more. It is looked up for those alone that have a limit of ticks.
func untilAt(moment string) string {
	return `CASE WHEN s.ticks_left IS NOT NULL THEN COALESCE((
					SELECT m.until_at
					FROM member m
					WHERE m.cohort_id = s.cohort_id AND m.spread = s.spread AND m.schedule_id = s.id AND m.tenant_id = $1), ` + moment + `) END`
}

// decide settles each tick and updates the states of its schedules, in one statement: it joins the schedules with what
// their workflows say, and the state with what both say. A tick is handed out unless there is a reason not to; one of
// a schedule whose state has seen its time already is not made again.
func (d *Dispatch) decide(ctx context.Context, tx pgx.Tx, o *opened, items []item, routes []route, halted bool) error {
	n := len(items)
	ids, flows, missed, dropped, forced, quiet := make([]int64, n), make([]int16, n), make([]int32, n), make([]bool, n), make([]bool, n), make([]bool, n)
	whys := make([]int16, n)
	for i, it := range items {
		ids[i], flows[i], missed[i], dropped[i], forced[i], quiet[i] = it.id, int16(it.Workflow), int32(it.Missed), it.Drop || it.Excluded, it.Forced, it.Quiet
		if whys[i] = int16(Missed); it.Excluded {
			whys[i] = int16(Excluded)
		}
	}
	w := columnsOf(routes)
	rows, err := tx.Query(ctx, `
		UPDATE schedule_state st
		SET seen_at = $2::timestamptz,
			missed = st.missed + n.missed,
			last_tick_at = $2,
			last_seq = 0,
			prev_at = st.last_at,
			last_at = CASE WHEN `+timedHanded+` THEN $2 ELSE st.last_at END,
			occurrence = st.occurrence + CASE WHEN `+timedHanded+` THEN 1 ELSE 0 END,
			live_at = CASE WHEN `+timedHanded+` THEN $2 ELSE st.live_at END,
			live_seq = CASE WHEN `+timedHanded+` THEN 0 ELSE st.live_seq END,
			`+timedCounted+`
		FROM (
			SELECT i.ord, i.missed, s.id, s.version, s.key, s.queue, s.priority, s.timeout_s, s.max_attempts,
				CASE WHEN w.push THEN s.payload END AS payload,
				COALESCE(s.overlap, w.overlap) AS overlap,
				`+untilAt("$2")+` AS until_at,
				CASE
					WHEN i.drop THEN ($6::smallint[])[i.ord]
					WHEN NOT w.known THEN $7::smallint
					WHEN $3::boolean OR s.status = 'paused' AND (s.paused_until IS NULL OR s.paused_until > $2) THEN $8::smallint
					WHEN NOT i.forced AND $4::timestamptz - $2 > make_interval(secs => COALESCE(s.max_lateness_s, w.max_lateness_s))
						AND COALESCE(s.on_expired, w.on_expired) = 'skip' THEN $9::smallint
					WHEN i.quiet THEN $23::smallint
					ELSE 0::smallint
				END AS reason
			FROM unnest($5::bigint[], $10::smallint[], $11::int[], $12::boolean[], $13::boolean[], $21::boolean[])
				WITH ORDINALITY AS i (id, flow, missed, drop, forced, quiet, ord)
			JOIN unnest($14::boolean[], $15::boolean[], $16::text[], $17::int[], $18::text[])
				WITH ORDINALITY AS w (known, push, overlap, max_lateness_s, on_expired, flow) ON w.flow = i.flow + 1
			JOIN schedule s ON s.tenant_id = $1 AND s.id = i.id
		) n
		WHERE st.tenant_id = $1 AND st.schedule_id = n.id AND (st.seen_at IS NULL OR st.seen_at < $2)
		RETURNING n.ord::int, st.schedule_id, n.version, n.key, st.fate, n.overlap = 'cancel_other' AS cancels,
			CASE
				WHEN n.reason <> 0 OR st.fate <> 2 THEN n.reason
				WHEN $2 = ANY (st.skips) THEN $20::smallint
				WHEN `+tooSoon+` THEN $22::smallint
				ELSE $19::smallint
			END AS reason,
			st.prev_at, st.last_at, n.until_at, st.delay_at, st.occurrence, n.payload, n.queue, n.priority, n.timeout_s, n.max_attempts`,
		int32(o.chunk.TenantID), o.chunk.NominalAt, halted, o.now, ids, whys, int16(NoWorkflow), int16(Paused), int16(Expired),
		flows, missed, dropped, forced, w.known, w.push, w.overlap, w.maxLateness, w.onExpired, int16(Overlap), int16(Requested), quiet, int16(Superseded), int16(QuietHours))
	if err != nil {
		return fmt.Errorf("decide ticks: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[decided])
	if err != nil {
		return fmt.Errorf("decide ticks: %w", err)
	}
	for _, one := range all {
		it := &items[one.Ord-1]
		it.decided = true
		d.settle(o, it, one, &routes[it.Workflow])
	}
	return nil
}

// settle makes the tick of what was decided, and sends it on its way.
func (d *Dispatch) settle(o *opened, it *item, one *decided, r *route) {
	c := o.chunk
	t := tick{
		ScheduleID: one.ScheduleID, NominalAt: c.NominalAt, Version: one.Version, MissedCount: int32(it.Missed),
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
			o.cancels = append(o.cancels, one.ScheduleID)
		}
		return
	}
	t.LastAt, t.Occurrence = one.PrevAt, &one.Occurrence
	if sabotage.LastIsItself.On() {
		t.LastAt = one.LastAt
	}
	if r.endpoint != nil {
		t.ChunkID = &c.ID
	}
	o.ticks = append(o.ticks, t)
	o.fired = append(o.fired, Fired{c.TenantID, r.name, one.Key, c.NominalAt, o.now})
	d.place(o, &t, r, one.Key, one.Payload, one.Queue, one.Priority, one.Timeout, one.Attempts)
}

func or[T any](own *T, inherited T) T {
	if own != nil {
		return *own
	}
	return inherited
}

func seconds[N int16 | int32](n N) time.Duration { return time.Duration(n) * time.Second }

// cancelDeleted records the ticks of schedules that were deleted after they were swept.
func (d *Dispatch) cancelDeleted(ctx context.Context, tx pgx.Tx, o *opened, items []item) error {
	var left []int64
	byID := map[int64]*item{}
	for i := range items {
		if !items[i].decided {
			left, byID[items[i].id] = append(left, items[i].id), &items[i]
		}
	}
	if len(left) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `
		SELECT schedule_id, version
		FROM revision
		WHERE tenant_id = $1 AND schedule_id = ANY($2) AND deleted`, int32(o.chunk.TenantID), left)
	if err != nil {
		return fmt.Errorf("look for deleted schedules: %w", err)
	}
	var id int64
	var version int32
	_, err = pgx.ForEachRow(rows, []any{&id, &version}, func() error {
		it := byID[id]
		o.ticks = append(o.ticks, tick{
			ScheduleID: id, NominalAt: o.chunk.NominalAt, Version: version, MissedCount: int32(it.Missed), CohortID: &it.Cohort,
			FiredAt: o.now, EndedAt: &o.now, Shard: o.chunk.Shard, Attempt: 0,
			State: Cancelled, Cause: BySchedule, DST: it.DST, workflow: o.chunk.Workflows[it.Workflow],
		})
		return nil
	})
	return err
}

// routeColumns are routes as the columns of a query.
type routeColumns struct {
	known, push        []bool
	overlap, onExpired []string
	maxLateness        []int32
}

func columnsOf(routes []route) routeColumns {
	var c routeColumns
	for _, r := range routes {
		c.known, c.push = append(c.known, r.known), append(c.push, r.endpoint != nil)
		c.overlap, c.onExpired = append(c.overlap, r.terms.Overlap), append(c.onExpired, r.terms.OnExpired)
		c.maxLateness = append(c.maxLateness, int32(r.terms.MaxLateness/time.Second))
	}
	return c
}

// route is how the ticks of a workflow are delivered, as it is registered at this moment.
type route struct {
	name        string
	known       bool
	version     string
	endpoint    *endpoint // nil: they are pulled
	limited     bool      // by max_running
	terms       schedules.Terms
	queue       string
	priority    int16
	timeout     int32
	maxAttempts int16
}

// routes reads the workflows of a chunk, in their order; whether the tenant's firing is stopped; and the clock.
func (d *Dispatch) routes(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflows []string) (routes []route, halted bool, now time.Time, err error) {
	routes = make([]route, len(workflows))
	index := map[string]int{}
	for i, name := range workflows {
		routes[i], index[name] = route{name: name}, i
	}
	var b pgx.Batch
	b.Queue(`SELECT halted_at IS NOT NULL OR status <> 'active', clock_timestamp() FROM tenant WHERE id = $1`, int32(tenant))
	b.Queue(sabotage.ForeignEndpoint.Without(`
		SELECT w.name, w.version, w.max_running IS NOT NULL, w.defaults, w.endpoint, e.url, e.batch, e.headers, e.state, e.secrets
		FROM workflow w
		LEFT JOIN endpoint e ON e.tenant_id = w.tenant_id AND e.name = w.endpoint
		WHERE w.tenant_id = $1 AND w.name = ANY($2)`, "e.tenant_id = w.tenant_id AND"), int32(tenant), workflows)
	results := tx.SendBatch(ctx, &b)
	defer results.Close()
	if err := results.QueryRow().Scan(&halted, &now); err != nil {
		return nil, false, now, fmt.Errorf("read tenant: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		return nil, false, now, fmt.Errorf("read workflows: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var version, endpointName, url, state *string
		var batch *int16
		var limited bool
		var defaults, headers []byte
		var secrets [][]byte
		if err := rows.Scan(&name, &version, &limited, &defaults, &endpointName, &url, &batch, &headers, &state, &secrets); err != nil {
			return nil, false, now, fmt.Errorf("read workflows: %w", err)
		}
		r := &routes[index[name]]
		r.known, r.version, r.limited = true, or(version, ""), limited
		if endpointName != nil {
			if r.endpoint, err = d.newEndpoint(tenant, *endpointName, *url, *batch, headers, *state, secrets); err != nil {
				return nil, false, now, err
			}
		}
		if r.terms, err = schedules.DefaultTerms(defaults); err != nil {
			return nil, false, now, err
		}
	}
	for i := range routes {
		if !routes[i].known {
			routes[i].terms, _ = schedules.DefaultTerms(nil)
		}
		t := routes[i].terms
		routes[i].queue, routes[i].priority = t.Queue, int16(t.Priority)
		routes[i].timeout, routes[i].maxAttempts = int32(t.Timeout/time.Second), int16(t.MaxAttempts)
	}
	return routes, halted, now.UTC(), rows.Err()
}
