package dispatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
)

// What clients do, in any order and at any time, has the schedules be as a simple model of the rulings says: their
// status, version, coming times and history agree after each step.
func TestSchedulesAreAsTheModelSays(t *testing.T) {
	t.Parallel()
	c := stoppedClock(t, time.Date(2027, 3, 1, 0, 0, 0, 5e8, time.UTC)) // half a second past: no time is ever just now
	h := newHouseOn(t, c.pool)
	h.quota("acme", 10_000_000) // tokens come with the clock, which stands still
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		h.exec(`DELETE FROM process`)
		w := &modelledHouse{house: h, clock: c, rt: rt, workflow: fmt.Sprint("w", runs), model: map[string]*modelled{}}
		defer w.clear()
		rt.Repeat(map[string]func(*rapid.T){
			"":       w.compare,
			"put":    w.put,
			"put 2":  w.put, // the commonest
			"patch":  w.patch,
			"pause":  w.pause,
			"resume": w.resume,
			"skip":   w.skip,
			"unskip": w.unskip,
			"delete": w.delete,
			"bulk":   w.bulk,
			"sync":   w.sync,
			"wait":   w.wait,
			"sweep":  w.sweep,
			"sweep 2": func(rt *rapid.T) {
				w.wait(rt)
				w.sweep(rt)
			},
			"finish": w.finish,
		})
	})
}

// modelledHouse is a house whose schedules of one workflow are modelled.
type modelledHouse struct {
	*house
	clock    *clock
	rt       *rapid.T
	workflow string
	model    map[string]*modelled
}

func (w *modelledHouse) key(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
}

func drawPlan(rt *rapid.T, now time.Time) plan {
	p := rapid.SampledFrom([]plan{
		{every: 15}, {every: 15}, {every: 60}, {every: 24 * 60, offset: 8 * 60}, {every: 6 * 60, offset: 90}, {every: 60, most: 3}, {every: 24 * 60, most: 1},
	}).Draw(rt, "plan")
	whole := now.Truncate(time.Second)
	switch rapid.IntRange(0, 9).Draw(rt, "bounds") {
	case 0:
		p.end = whole.Add(time.Duration(rapid.IntRange(-1, 40).Draw(rt, "hours")) * time.Hour)
	case 1:
		p = plan{once: whole.Add(time.Duration(rapid.IntRange(-1, 30).Draw(rt, "hours")) * time.Hour)}
	}
	return p
}

func (w *modelledHouse) draw(rt *rapid.T, is *modelled) definition {
	d := definition{plan: drawPlan(rt, w.clock.now), missed: "last", overlap: "allow_all"}
	if is != nil { // mostly a little of it changes
		d.missed, d.overlap, d.payload = is.missed, is.overlap, is.payload
		if rapid.IntRange(0, 3).Draw(rt, "respecify") > 0 {
			d.plan = is.plan
		}
	}
	some := func(what string) bool { return rapid.IntRange(0, 3).Draw(rt, what) == 0 }
	if some("change missed") {
		d.missed = rapid.SampledFrom([]string{"last", "all", "none"}).Draw(rt, "missed")
	}
	if some("change overlap") {
		d.overlap = rapid.SampledFrom([]string{"allow_all", "skip", "buffer_one"}).Draw(rt, "overlap")
	}
	if some("change payload") {
		d.payload = rapid.SampledFrom([]string{"", `{"n":1}`, `{"n":2}`}).Draw(rt, "payload")
	}
	if some("change note") {
		d.note = new(rapid.SampledFrom([]string{"n", "m"}).Draw(rt, "note"))
	}
	if some("change status") {
		d.status = rapid.SampledFrom([]string{"active", "paused"}).Draw(rt, "status")
	}
	return d
}

// expect puts the model's outcome beside ours.
func (w *modelledHouse) expect(rt *rapid.T, what string, want outcome, err error) {
	got := outcome("")
	if f, ok := errors.AsType[*fault.Error](err); ok {
		got = outcome(f.Code)
	} else if err != nil {
		rt.Fatalf("%s: %v", what, err)
	}
	if got != want {
		rt.Fatalf("%s: got %q (%v), want %q", what, got, err, want)
	}
	w.openAll(rt)
}

// upsert is what an upsert makes of the model.
func (w *modelledHouse) upsert(key string, d definition) outcome {
	if is := w.model[key]; is != nil {
		return is.put(d, w.clock.now)
	}
	m, out := made(d, w.clock.now)
	if out == "" {
		w.model[key] = m
	}
	return out
}

func (w *modelledHouse) put(rt *rapid.T) {
	key := w.key(rt)
	is := w.model[key]
	d := w.draw(rt, is)
	var pre version.Precondition
	wrong := false
	if rapid.IntRange(0, 5).Draw(rt, "precondition") == 0 {
		demanded := rapid.IntRange(1, 4).Draw(rt, "version")
		pre.IfMatch = version.Of(int64(demanded))
		wrong = is == nil || is.version != demanded
	}
	_, made, err := w.schedules.Put(rt.Context(), policy.Name{Tenant: w.tenant, Workflow: w.workflow, Key: key}, d.params(), "ann", pre)
	want := outcome("version_mismatch")
	if !wrong {
		want = w.upsert(key, d)
	}
	w.expect(rt, "put "+key, want, err)
	if err == nil && made != (is == nil) {
		rt.Fatalf("put %s: made is %t", key, made)
	}
}

func (w *modelledHouse) patch(rt *rapid.T) {
	key := w.key(rt)
	patch, is := map[string]any{}, w.model[key]
	d := definition{}
	if is != nil {
		d = definition{plan: is.plan, missed: is.missed, overlap: is.overlap, payload: is.payload}
	}
	if rapid.Bool().Draw(rt, "payload") {
		d.payload = rapid.SampledFrom([]string{`{"n":1}`, `{"n":3}`}).Draw(rt, "payload")
		patch["payload"] = json.RawMessage(d.payload)
	}
	if rapid.Bool().Draw(rt, "note") {
		note := rapid.SampledFrom([]string{"", "p"}).Draw(rt, "note")
		if d.note = &note; note == "" {
			patch["note"] = nil
		} else {
			patch["note"] = note
		}
	}
	if rapid.Bool().Draw(rt, "missed") {
		d.missed = rapid.SampledFrom([]string{"last", "all"}).Draw(rt, "missed")
		patch["policy"] = map[string]any{"missed": d.missed}
	}
	if rapid.Bool().Draw(rt, "status") {
		d.status = rapid.SampledFrom([]string{"active", "paused"}).Draw(rt, "status")
		patch["status"] = d.status
	}
	text, err := json.Marshal(patch)
	if err != nil {
		rt.Fatal(err)
	}
	want := outcome("not_found")
	_, err = w.schedules.Patch(rt.Context(), policy.Name{Tenant: w.tenant, Workflow: w.workflow, Key: key}, text, "bob", version.Precondition{})
	if is != nil {
		want = is.put(d, w.clock.now)
	}
	w.expect(rt, "patch "+key, want, err)
}

func (w *modelledHouse) pause(rt *rapid.T) {
	key := w.key(rt)
	var until time.Time
	var p schedules.PauseParams
	if rapid.Bool().Draw(rt, "until") {
		until = w.clock.now.Truncate(time.Second).Add(time.Duration(rapid.IntRange(1, 600).Draw(rt, "minutes")) * time.Minute)
		p.Until = &until
	}
	want := outcome("not_found")
	_, _, err := w.schedules.Pause(rt.Context(), w.tenant, w.workflow, key, p, schedules.Changer{By: "ann"})
	if is := w.model[key]; is != nil {
		want = is.pause(until, w.clock.now)
	}
	w.expect(rt, "pause "+key, want, err)
}

func (w *modelledHouse) resume(rt *rapid.T) {
	key, once := w.key(rt), rapid.Bool().Draw(rt, "fire once")
	want := outcome("not_found")
	_, _, err := w.schedules.Resume(rt.Context(), w.tenant, w.workflow, key, schedules.ResumeParams{FireOnce: once}, schedules.Changer{By: "ann"})
	if is := w.model[key]; is != nil {
		want = is.resume(once, w.clock.now)
	}
	w.expect(rt, "resume "+key, want, err)
}

func (w *modelledHouse) skip(rt *rapid.T) {
	key, n := w.key(rt), rapid.IntRange(1, 3).Draw(rt, "count")
	want := outcome("not_found")
	_, _, err := w.schedules.Skip(rt.Context(), w.tenant, w.workflow, key, schedules.SkipParams{Count: &n}, schedules.Changer{By: "ann"})
	if is := w.model[key]; is != nil {
		want = is.skip(n, w.clock.now)
	}
	w.expect(rt, "skip "+key, want, err)
}

func (w *modelledHouse) unskip(rt *rapid.T) {
	key := w.key(rt)
	want := outcome("not_found")
	_, _, err := w.schedules.Unskip(rt.Context(), w.tenant, w.workflow, key, schedules.Changer{By: "ann"})
	if is := w.model[key]; is != nil {
		is.unskip(w.clock.now)
		want = ""
	}
	w.expect(rt, "unskip "+key, want, err)
}

func (w *modelledHouse) delete(rt *rapid.T) {
	key := w.key(rt)
	want := outcome("not_found")
	err := w.schedules.Delete(rt.Context(), w.tenant, w.workflow, key, schedules.Changer{By: "ann"})
	if w.model[key] != nil {
		want = ""
		delete(w.model, key)
	}
	w.expect(rt, "delete "+key, want, err)
}

// lines draws what some keys are to be, as NDJSON, and puts it to the model.
func (w *modelledHouse) lines(rt *rapid.T) (body io.ReadCloser, listed map[string]bool, want []outcome) {
	var text strings.Builder
	listed = map[string]bool{}
	for _, key := range rapid.Permutation([]string{"a", "b", "c"}).Draw(rt, "keys")[:rapid.IntRange(1, 3).Draw(rt, "how many")] {
		d := w.draw(rt, w.model[key])
		line, err := web.Marshal(bulk.Line{Workflow: w.workflow, Key: &key, Params: d.params()})
		if err != nil {
			rt.Fatal(err)
		}
		text.Write(append(line, '\n'))
		listed[key], want = true, append(want, w.upsert(key, d))
	}
	return io.NopCloser(strings.NewReader(text.String())), listed, want
}

// gather keeps what became of each line.
func gather(got *[]outcome) func([]bulk.Result) error {
	return func(batch []bulk.Result) error {
		for _, r := range batch {
			out := outcome("")
			if r.Error != nil {
				out = outcome(r.Error.Code)
			}
			*got = append(*got, out)
		}
		return nil
	}
}

func (w *modelledHouse) bulk(rt *rapid.T) {
	body, _, want := w.lines(rt)
	var got []outcome
	if _, err := w.inBulk.Upsert(rt.Context(), w.tenant, "ann", body, gather(&got)); err != nil || !slices.Equal(got, want) {
		rt.Fatalf("bulk: got %q, %v, want %q", got, err, want)
	}
	w.openAll(rt)
}

// sync makes the stored schedules be those of some keys.
func (w *modelledHouse) sync(rt *rapid.T) {
	w.clock.move(w.t, time.Second) // what is made in the moment in which a sync begins is not its business
	unlisted := rapid.SampledFrom([]string{"keep", "pause", "delete"}).Draw(rt, "unlisted")
	body, listed, want := w.lines(rt)
	var got []outcome
	_, _, err := w.inBulk.Sync(rt.Context(), w.tenant, "ann", bulk.SyncParams{Workflow: w.workflow, Unlisted: unlisted}, body, gather(&got))
	if err != nil || !slices.Equal(got, want) {
		rt.Fatalf("sync: got %q, %v, want %q", got, err, want)
	}
	for key, is := range w.model {
		switch {
		case listed[key] || slices.ContainsFunc(want, func(o outcome) bool { return o != "" }): // a bad line spares the others
		case unlisted == "delete":
			delete(w.model, key)
		case unlisted == "pause":
			is.pause(time.Time{}, w.clock.now)
		}
	}
	w.openAll(rt)
}

// wait lets time pass.
func (w *modelledHouse) wait(rt *rapid.T) {
	seconds := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(60, 4*60*60), rapid.IntRange(60*60, 30*60*60)).Draw(rt, "seconds")
	w.clock.move(w.t, time.Duration(seconds)*time.Second)
}

// openAll opens what was swept or handed out.
func (w *modelledHouse) openAll(rt *rapid.T) {
	if err := w.dispatch.Register(rt.Context()); err != nil { // nothing beats for it, and one that is silent opens nothing
		rt.Fatal(err)
	}
	for _, id := range w.chunks() {
		if err := w.dispatch.Open(rt.Context(), id); err != nil {
			rt.Fatal(err)
		}
	}
}

// dueShards are the shards in which something is due.
func (w *modelledHouse) dueShards(rt *rapid.T) []int16 {
	rows, _ := w.pool.Query(rt.Context(), `
		SELECT shard FROM cohort WHERE due_at <= clock_timestamp()
		UNION SELECT shard FROM held WHERE due_at <= clock_timestamp()
		UNION SELECT shard FROM turn WHERE due_at <= clock_timestamp()`) // CollectRows reports the error
	shards, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		rt.Fatal(err)
	}
	return shards
}

// sweepAll sweeps until nothing is due, and opens it all.
func (w *modelledHouse) sweepAll(rt *rapid.T) {
	for shards := w.dueShards(rt); len(shards) > 0; shards = w.dueShards(rt) {
		for _, shard := range shards {
			if _, err := w.dispatch.SweepOnce(rt.Context(), shard); err != nil {
				rt.Fatal(err)
			}
		}
		w.openAll(rt)
	}
	if n := w.number(`SELECT count(*) FROM cohort WHERE wait_at IS NOT NULL`); n > 0 {
		rt.Fatalf("%d cohorts wait for a turn", n)
	}
	if err := w.dispatch.Complete(rt.Context()); err != nil {
		rt.Fatal(err)
	}
}

func (w *modelledHouse) sweep(rt *rapid.T) {
	w.sweepAll(rt)
	for _, m := range w.model {
		m.sweep(w.clock.now)
	}
}

// finish completes all that runs, and hands out what that released.
func (w *modelledHouse) finish(rt *rapid.T) {
	w.sweep(rt)
	w.complete(rt)
	for _, m := range w.model {
		m.finish(w.clock.now)
	}
	w.sweepAll(rt)
}

func (w *modelledHouse) complete(rt *rapid.T) {
	body, err := w.dispatch.Leases.Lease(rt.Context(), w.tenant, lease.LeaseParams{Workflows: []string{w.workflow}, Max: new(1000), Worker: "w"}, nil)
	if err != nil {
		rt.Fatal(err)
	}
	var leased struct {
		Ticks []struct {
			ID    string `json:"tick_id"`
			Token string `json:"lease_token"`
		}
	}
	if err := json.Unmarshal(body, &leased); err != nil {
		rt.Fatal(err)
	}
	var ends []lease.Finish
	for _, one := range leased.Ticks {
		ends = append(ends, lease.Finish{TickID: one.ID, LeaseToken: one.Token, Outcome: "complete"})
	}
	if len(ends) == 0 {
		return
	}
	if _, err := w.dispatch.Leases.Finish(rt.Context(), w.tenant, ends); err != nil {
		rt.Fatal(err)
	}
}

// clear takes the schedules of one run away, so that they do not burden the next.
func (w *modelledHouse) clear() {
	for key := range w.model {
		if err := w.schedules.Delete(w.t.Context(), w.tenant, w.workflow, key, schedules.Changer{By: "ann"}); err != nil {
			w.t.Error(err)
		}
	}
	w.exec(`DELETE FROM held`)
	w.exec(`DELETE FROM ready`)
}

// picture is a schedule as it can be seen.
type picture struct {
	Status   string
	Version  int
	Upcoming []time.Time
	Stats    schedules.Stats
	LastAt   time.Time
	History  []modelTick
}

func (w *modelledHouse) compare(rt *rapid.T) {
	for _, key := range []string{"a", "b", "c"} {
		s, err := w.schedules.Get(rt.Context(), w.tenant, w.workflow, key)
		is := w.model[key]
		if is == nil {
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "not_found" {
				rt.Fatalf("%s is there, %v, and the model has none", key, err)
			}
			continue
		}
		if err != nil {
			rt.Fatal(err)
		}
		if is.wake(w.clock.now); true {
			if diff := cmp.Diff(is.picture(w.clock.now), w.picture(s)); diff != "" {
				rt.Fatalf("%s at %s (-model +ours):\n%s", key, w.clock.now.Format(time.RFC3339), diff)
			}
		}
	}
}

func (m *modelled) picture(now time.Time) picture {
	p := picture{
		Status: m.status, Version: m.version, Upcoming: m.upcoming(now), LastAt: m.last,
		Stats: schedules.Stats{Fired: int64(m.fired), Succeeded: int64(m.done), Failed: int64(m.failed), Skipped: int64(m.skipped), Missed: int64(m.missedN)},
	}
	for _, t := range m.history {
		p.History = append(p.History, *t)
	}
	return p
}

func (w *modelledHouse) picture(s schedules.Schedule) picture {
	p := picture{Status: s.Status, Version: int(s.Version), Stats: s.Stats}
	if len(s.Upcoming) > 0 {
		p.Upcoming = s.Upcoming
	}
	if s.LastAt != nil {
		p.LastAt = *s.LastAt
	}
	for _, t := range w.history(s.Workflow, s.Key) {
		if t.ScheduleID != s.ID { // of one that was deleted
			continue
		}
		one := modelTick{At: t.Timestamp, State: t.State, Reason: t.Reason, Manual: t.Cause == "manual", Missed: int(t.MissedCount), Version: int(t.ScheduleVersion)}
		if t.LastTimestamp != nil {
			one.Last = *t.LastTimestamp
		}
		if t.Occurrence != nil {
			one.Occurrence = int(*t.Occurrence)
		}
		p.History = append(p.History, one)
	}
	return p
}
