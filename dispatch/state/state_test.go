package state_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"
)

// After each step of any sequence of what happens to schedules, their counters are what their ticks add up to.
func TestCountersAgreeWithTheTicks(t *testing.T) {
	t.Parallel()
	c := postgrestest.StoppedClock(t, time.Date(2090, 3, 1, 12, 0, 0, 5e8, time.UTC))
	h := dispatchtest.NewOn(t, c.Pool)
	h.Quota("acme", 10_000_000) // tokens come with the clock, which stands still
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		h.Exec(`DELETE FROM process`)
		w := &countedHouse{
			ModelledHouse: &dispatchtest.ModelledHouse{Carillon: h, Clock: c, Rt: rt, Workflow: fmt.Sprint("w", runs), Model: map[string]*dispatchtest.Modelled{}},
			counters:      map[int64]*counters{}, was: map[ident.TickKey]countedTick{}, handed: map[ident.TickKey]bool{},
		}
		defer w.Clear()
		w.start(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":          w.compare,
			"put":       w.put,
			"overlap":   w.changeOverlap,
			"pause":     w.pause,
			"resume":    w.resume,
			"skip":      w.skip,
			"delete":    w.delete,
			"sweep":     w.sweep,
			"wait":      w.waitAndSweep,
			"wait 2":    w.waitAndSweep,
			"trigger":   w.trigger,
			"trigger 2": w.trigger,
			"cancel":    w.cancel,
			"finish":    w.finish,
			"finish 2":  w.finish,
			"fail":      w.fail,
			"replay":    w.replay,
			"backfill":  w.backfill,
			"go on":     w.goOn,
			"supersede": w.supersede,
			"expire":    w.expire,
			"overtake":  w.overtake,
		})
	})
}

// counters are those of one schedule.
type counters struct {
	Key                                  string
	Live, Buffered, Aside, AsideBuffered int
	Fired, Succeeded, Failed, Skipped    int
	Missed, Manual, Occurrence           int
	Failures                             int // in a row
	LastAt, SeenAt                       *time.Time
	LiveAt                               *time.Time // with LiveSeq: the own tick that was handed out last
	LiveSeq                              int32
	DelayAt                              *time.Time // of the timed tick of fixed_delay that has not ended
}

// countedTick holds the fields of a tick on which the counters depend.
type countedTick struct {
	ScheduleID int64
	NominalAt  time.Time
	Seq        int32
	State      string
	Aside      bool
	Backfilled bool
	Missed     int
	Occurrence *int
}

func (t countedTick) key() ident.TickKey {
	return ident.TickKey{Schedule: t.ScheduleID, At: t.NominalAt.UTC(), Seq: t.Seq}
}

func (t countedTick) ended() bool { return t.State != "scheduled" && t.State != "running" }

// countedHouse counts by itself what happens to the ticks of a workflow. It looks at them after each call.
type countedHouse struct {
	*dispatchtest.ModelledHouse
	counters map[int64]*counters // what changes with each look; the rest is added up when it is compared
	was      map[ident.TickKey]countedTick
	handed   map[ident.TickKey]bool // out, ever
}

// delayedKey is the key of a schedule with fixed_delay.
const delayedKey = "d"

func (w *countedHouse) start(rt *rapid.T) {
	w.store(rt, delayedKey, schedules.Params{
		Spec:   calendar.Spec{Intervals: []calendar.Interval{{Every: "10m", Mode: "fixed_delay", First: "now"}}},
		Policy: &policy.Policy{Overlap: drawOverlap(rt)},
	})
	for _, key := range []string{"a", "b"} {
		w.store(rt, key, w.drawParams(rt))
	}
}

func drawOverlap(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"allow_all", "skip", "buffer_one", "buffer_all", "cancel_other"}).Draw(rt, "overlap")
}

func (w *countedHouse) drawParams(rt *rapid.T) schedules.Params {
	p := dispatchtest.Plan{Every: rapid.SampledFrom([]int{30, 60}).Draw(rt, "every")}
	return schedules.Params{Spec: p.Spec(), Policy: &policy.Policy{
		Missed: rapid.SampledFrom([]string{"last", "all", "none"}).Draw(rt, "missed"), Overlap: drawOverlap(rt), MaxLateness: "1h",
	}}
}

func (w *countedHouse) store(rt *rapid.T, key string, p schedules.Params) {
	_, _, err := w.Schedules.Put(rt.Context(), policy.Name{Tenant: w.Tenant, Workflow: w.Workflow, Key: key}, p, "ann", version.Precondition{})
	w.did(rt, "put", err)
	w.Model[key] = &dispatchtest.Modelled{}
}

// did looks at the ticks after a call, and opens what it handed out. A call may be refused.
func (w *countedHouse) did(rt *rapid.T, what string, err error) {
	if err != nil {
		if _, refused := err.(*fault.Error); !refused {
			rt.Fatalf("%s: %v", what, err)
		}
	}
	w.look(rt)
	w.openAll(rt)
}

func (w *countedHouse) openAll(rt *rapid.T) {
	chunks := w.Chunks()
	if len(chunks) == 0 {
		return
	}
	if err := w.Dispatch.Register(rt.Context()); err != nil {
		rt.Fatal(err)
	}
	for _, id := range chunks {
		if err := w.Dispatch.Open(rt.Context(), id); err != nil {
			rt.Fatal(err)
		}
		w.look(rt)
	}
}

func (w *countedHouse) sweep(rt *rapid.T) {
	for shards := w.DueShards(rt); len(shards) > 0; shards = w.DueShards(rt) {
		for _, shard := range shards {
			if _, err := w.Dispatch.SweepOnce(rt.Context(), shard); err != nil {
				rt.Fatal(err)
			}
		}
		w.openAll(rt)
	}
}

func (w *countedHouse) waitAndSweep(rt *rapid.T) {
	w.pass(rt, time.Duration(rapid.SampledFrom([]int{1, 30, 60, 150}).Draw(rt, "minutes"))*time.Minute)
}

func (w *countedHouse) key(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", delayedKey}).Draw(rt, "key")
}

func (w *countedHouse) put(rt *rapid.T) {
	w.store(rt, rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key"), w.drawParams(rt))
}

// changeOverlap changes the policy of a schedule while its ticks run and wait.
func (w *countedHouse) changeOverlap(rt *rapid.T) { w.overlap(rt, w.key(rt), drawOverlap(rt)) }

func (w *countedHouse) overlap(rt *rapid.T, key, overlap string) {
	patch := fmt.Sprintf(`{"policy": {"overlap": %q}}`, overlap)
	_, err := w.Schedules.Patch(rt.Context(), policy.Name{Tenant: w.Tenant, Workflow: w.Workflow, Key: key}, []byte(patch), "ann", version.Precondition{})
	w.did(rt, "change overlap", err)
}

// pass lets time pass, and sweeps.
func (w *countedHouse) pass(rt *rapid.T, by time.Duration) {
	w.Clock.Move(w.T, by)
	w.sweep(rt)
}

// bufferTimed makes timed ticks wait, if the schedule is active.
func (w *countedHouse) bufferTimed(rt *rapid.T, key string) {
	w.overlap(rt, key, "buffer_all")
	for range 2 {
		w.pass(rt, 30*time.Minute)
	}
}

// supersede replaces several ticks that wait by one.
func (w *countedHouse) supersede(rt *rapid.T) {
	w.bufferTimed(rt, "a")
	w.triggerOf(rt, "a")
	w.overlap(rt, "a", "cancel_other")
	w.triggerOf(rt, "a")
}

// expire ends what runs once the ticks that wait for it are too late.
func (w *countedHouse) expire(rt *rapid.T) {
	w.bufferTimed(rt, "a")
	w.Clock.Move(w.T, 150*time.Minute)
	w.endAll(rt)
}

// overtake hands out a tick before one that waits.
func (w *countedHouse) overtake(rt *rapid.T) {
	w.bufferTimed(rt, "a")
	w.overlap(rt, "a", "allow_all")
	w.pass(rt, 30*time.Minute)
	w.endAll(rt)
}

// endAll completes what runs.
func (w *countedHouse) endAll(rt *rapid.T) { w.end(rt, "complete", 100) }

func (w *countedHouse) pause(rt *rapid.T) {
	_, _, err := w.Schedules.Pause(rt.Context(), w.Tenant, w.Workflow, w.key(rt), schedules.PauseParams{}, schedules.Changer{By: "ann"})
	w.did(rt, "pause", err)
}

func (w *countedHouse) resume(rt *rapid.T) {
	p := schedules.ResumeParams{FireOnce: rapid.Bool().Draw(rt, "fire once")}
	_, _, err := w.Schedules.Resume(rt.Context(), w.Tenant, w.Workflow, w.key(rt), p, schedules.Changer{By: "ann"})
	w.did(rt, "resume", err)
}

func (w *countedHouse) skip(rt *rapid.T) {
	_, _, err := w.Schedules.Skip(rt.Context(), w.Tenant, w.Workflow, w.key(rt), schedules.SkipParams{Count: new(1)}, schedules.Changer{By: "ann"})
	w.did(rt, "skip", err)
}

func (w *countedHouse) delete(rt *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
	w.did(rt, "delete", w.Schedules.Delete(rt.Context(), w.Tenant, w.Workflow, key, schedules.Changer{By: "ann"}))
	delete(w.Model, key)
}

func (w *countedHouse) trigger(rt *rapid.T) {
	w.triggerOf(rt, w.key(rt))
}

func (w *countedHouse) triggerOf(rt *rapid.T, key string) {
	_, _, err := w.Dispatch.Control.Trigger(rt.Context(), w.Tenant, w.Workflow, key, control.TriggerParams{}, once.Request{})
	w.did(rt, "trigger", err)
}

// pick draws one of the ticks of which some condition holds, and returns its id; none is empty.
func (w *countedHouse) pick(rt *rapid.T, holds func(countedTick) bool) string {
	var keys []ident.TickKey
	for k, t := range w.was {
		if holds(t) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	slices.SortFunc(keys, ident.TickKey.Compare)
	return w.Config.IDs.Tick(rapid.SampledFrom(keys).Draw(rt, "tick"))
}

func (w *countedHouse) cancel(rt *rapid.T) {
	if id := w.pick(rt, func(t countedTick) bool { return !t.ended() }); id != "" {
		_, err := w.Dispatch.Control.Cancel(rt.Context(), w.Tenant, id)
		w.did(rt, "cancel", err)
	}
}

func (w *countedHouse) replay(rt *rapid.T) {
	if id := w.pick(rt, func(t countedTick) bool { return t.State == "failed" }); id != "" {
		_, _, err := w.Dispatch.Replays.Replay(rt.Context(), w.Tenant, id, once.Request{})
		w.did(rt, "replay", err)
	}
}

func (w *countedHouse) finish(rt *rapid.T) {
	w.end(rt, "complete", rapid.IntRange(1, 2).Draw(rt, "ticks"))
}

func (w *countedHouse) fail(rt *rapid.T) { w.end(rt, "fail", rapid.IntRange(1, 2).Draw(rt, "ticks")) }

// end leases ticks, and ends each.
func (w *countedHouse) end(rt *rapid.T, outcome string, most int) {
	w.sweep(rt)
	body, err := w.Dispatch.Leases.Lease(rt.Context(), w.Tenant, lease.LeaseParams{Workflows: []string{w.Workflow}, Max: &most, Worker: "w"}, nil)
	w.did(rt, "lease", err)
	var leased struct{ Ticks []dispatchtest.Handed }
	if err := json.Unmarshal(body, &leased); err != nil {
		rt.Fatal(err)
	}
	for _, one := range leased.Ticks {
		retry := rapid.Bool().Draw(rt, "retry")
		_, err := w.Dispatch.Leases.Finish(rt.Context(), w.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: outcome, Retry: &retry, Error: "e", RetryAfter: "0s"}})
		w.did(rt, outcome, err)
	}
}

func (w *countedHouse) backfill(rt *rapid.T) {
	to := w.Clock.Now.Truncate(time.Hour)
	p := control.BackfillParams{
		From: to.Add(-time.Duration(rapid.IntRange(1, 4).Draw(rt, "hours")) * time.Hour), To: to,
		Overlap: rapid.SampledFrom([]string{"allow_all", "buffer_all"}).Draw(rt, "overlap"),
	}
	_, _, err := w.Dispatch.Backfills.Backfill(rt.Context(), policy.Name{Tenant: w.Tenant, Workflow: w.Workflow, Key: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")}, p, "ann", once.Request{})
	w.did(rt, "backfill", err)
	w.goOn(rt)
}

// goOn makes the next step of each backfill.
func (w *countedHouse) goOn(rt *rapid.T) {
	w.Clock.Move(w.T, 2*time.Second)
	rows, _ := w.Pool.Query(rt.Context(), `SELECT id FROM operation WHERE ended_at IS NULL ORDER BY id`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		rt.Fatal(err)
	}
	for _, id := range ids {
		w.did(rt, "go on", w.Config.Operations.Run(rt.Context(), id))
	}
}

// ticks reads all ticks of the workflow's schedules, those of deleted ones too.
func (w *countedHouse) ticks(rt *rapid.T) []countedTick {
	rows, _ := w.Pool.Query(rt.Context(), `
		SELECT t.schedule_id, t.nominal_at, t.seq, (ARRAY['scheduled', 'running', 'succeeded', 'failed', 'cancelled', 'skipped'])[t.state + 1] AS state,
			t.cause = $2 OR t.replayed_from IS NOT NULL AS aside, t.cause = $2 AS backfilled, t.missed_count AS missed, t.occurrence
		FROM tick t
		WHERE t.schedule_id IN (SELECT id FROM schedule WHERE workflow = $1 UNION SELECT schedule_id FROM revision WHERE workflow = $1)`,
		w.Workflow, int16(record.Backfill)) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[countedTick])
	if err != nil {
		rt.Fatal(err)
	}
	return all
}

// look counts what became of ticks since the look before.
func (w *countedHouse) look(rt *rapid.T) {
	succeeded, failed := map[int64]int{}, map[int64]int{}
	for _, t := range w.ticks(rt) {
		k := t.key()
		was := w.was[k]
		w.was[k] = t
		c := w.of(k.Schedule)
		if t.State == was.State {
			continue
		}
		switch t.State {
		case "succeeded":
			succeeded[k.Schedule]++
		case "failed":
			failed[k.Schedule]++
		case "running":
			if !w.handed[k] { // else it is delivered again
				w.handed[k] = true
				c.Fired++
			}
			if !t.Aside {
				c.LiveAt, c.LiveSeq = new(k.At), k.Seq
			}
		}
	}
	for id, c := range w.counters {
		c.Failures += failed[id]
		if succeeded[id] > 0 {
			c.Failures = 0
		}
	}
}

func (w *countedHouse) of(schedule int64) *counters {
	if w.counters[schedule] == nil {
		w.counters[schedule] = &counters{}
	}
	return w.counters[schedule]
}

// added returns the counters of the schedules as the ticks say.
func (w *countedHouse) added(keys map[int64]string) map[int64]*counters {
	all := map[int64]*counters{}
	for id, key := range keys {
		c := *w.of(id)
		c.Key = key
		all[id] = &c
	}
	for k, t := range w.was {
		c := all[k.Schedule]
		if c == nil {
			continue
		}
		c.add(t)
	}
	return all
}

func (c *counters) add(t countedTick) {
	at := t.NominalAt.UTC()
	switch {
	case t.State == "running" && t.Aside:
		c.Aside++
	case t.State == "running":
		c.Live++
	case t.State == "scheduled" && t.Aside:
		c.AsideBuffered++
	case t.State == "scheduled":
		c.Buffered++
	case t.State == "succeeded":
		c.Succeeded++
	case t.State == "failed":
		c.Failed++
	case t.State == "skipped":
		c.Skipped++
	}
	c.Missed += t.Missed
	c.Manual = max(c.Manual, int(t.Seq))
	if t.Occurrence != nil {
		if *t.Occurrence > c.Occurrence {
			c.Occurrence, c.LastAt = *t.Occurrence, &at
		}
	}
	if t.Seq > 0 || t.Backfilled {
		return
	}
	if c.SeenAt == nil || c.SeenAt.Before(at) {
		c.SeenAt = &at
	}
	if c.Key == delayedKey && !t.ended() && !t.Aside {
		c.DelayAt = &at
	}
}

// stored returns the counters as schedule_state has them.
func (w *countedHouse) stored(rt *rapid.T) map[int64]*counters {
	rows, err := w.Pool.Query(rt.Context(), `
		SELECT st.schedule_id, s.key, st.live, st.buffered, st.aside, st.aside_buffered, st.fired, st.succeeded, st.failed, st.skipped, st.missed, st.manual, st.occurrence,
			st.failures, st.last_at, COALESCE(st.seen_at, st.last_at), COALESCE(st.live_at, st.last_at), COALESCE(st.live_seq, 0), st.delay_at
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		WHERE s.workflow = $1`, w.Workflow)
	if err != nil {
		rt.Fatal(err)
	}
	all := map[int64]*counters{}
	var id int64
	var c counters
	_, err = pgx.ForEachRow(rows, []any{
		&id, &c.Key, &c.Live, &c.Buffered, &c.Aside, &c.AsideBuffered, &c.Fired, &c.Succeeded, &c.Failed, &c.Skipped, &c.Missed, &c.Manual, &c.Occurrence,
		&c.Failures, &c.LastAt, &c.SeenAt, &c.LiveAt, &c.LiveSeq, &c.DelayAt,
	}, func() error {
		one := c
		for _, at := range []**time.Time{&one.LastAt, &one.SeenAt, &one.LiveAt, &one.DelayAt} {
			if *at != nil {
				*at = new((*at).UTC())
			}
		}
		all[id] = &one
		return nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	return all
}

func (w *countedHouse) compare(rt *rapid.T) {
	got, keys := w.stored(rt), map[int64]string{}
	for id, c := range got {
		keys[id] = c.Key
	}
	if diff := cmp.Diff(w.added(keys), got); diff != "" {
		rt.Fatalf("the ticks add up to -, and the counters are +:\n%s", diff)
	}
	wrong := w.Number(`
		SELECT count(*)
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		CROSS JOIN LATERAL (
			SELECT count(*) FILTER (WHERE NOT aside) AS own, count(*) FILTER (WHERE aside) AS aside FROM buffered WHERE tenant_id = s.tenant_id AND schedule_id = s.id
		) b
		WHERE s.workflow = $1 AND (st.buffered, st.aside_buffered) <> (b.own, b.aside)`, w.Workflow)
	if wrong > 0 {
		rt.Fatalf("%d schedules have other buffered ticks than they count", wrong)
	}
}
