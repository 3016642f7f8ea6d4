package dispatchtest

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
)

// ModelledHouse is a Carillon with a model of the schedules of one workflow.
type ModelledHouse struct {
	*Carillon
	Clock    *postgrestest.Clock
	Rt       *rapid.T
	Workflow string
	Model    map[string]*Modelled
}

func (w *ModelledHouse) key(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
}

func drawPlan(rt *rapid.T, now time.Time) Plan {
	p := rapid.SampledFrom([]Plan{
		{Every: 15}, {Every: 15}, {Every: 60}, {Every: 24 * 60, offset: 8 * 60}, {Every: 6 * 60, offset: 90}, {Every: 60, most: 3}, {Every: 24 * 60, most: 1},
	}).Draw(rt, "plan")
	whole := now.Truncate(time.Second)
	switch rapid.IntRange(0, 9).Draw(rt, "bounds") {
	case 0:
		p.end = whole.Add(time.Duration(rapid.IntRange(-1, 40).Draw(rt, "hours")) * time.Hour)
	case 1:
		p = Plan{once: whole.Add(time.Duration(rapid.IntRange(-1, 30).Draw(rt, "hours")) * time.Hour)}
	}
	return p
}

func (w *ModelledHouse) draw(rt *rapid.T, is *Modelled) definition {
	d := definition{plan: drawPlan(rt, w.Clock.Now), missed: "last", overlap: "allow_all"}
	if is != nil { // usually only a few of its fields change
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

// expect compares the outcome of a call with the outcome in the model, and opens chunks.
func (w *ModelledHouse) expect(rt *rapid.T, what string, want outcome, err error) {
	got := outcome("")
	if f, ok := errors.AsType[*fault.Error](err); ok {
		got = outcome(f.Code)
	} else if err != nil {
		rt.Fatalf("%s: %v", what, err)
	}
	if got != want {
		rt.Fatalf("%s: got %q (%v), want %q", what, got, err, want)
	}
	w.OpenChunks(rt)
}

// upsert applies an upsert to the model, and returns its outcome.
func (w *ModelledHouse) upsert(key string, d definition) outcome {
	if is := w.Model[key]; is != nil {
		return is.put(d, w.Clock.Now)
	}
	m, out := made(d, w.Clock.Now)
	if out == "" {
		w.Model[key] = m
	}
	return out
}

func (w *ModelledHouse) Put(rt *rapid.T) {
	key := w.key(rt)
	is := w.Model[key]
	d := w.draw(rt, is)
	var pre version.Precondition
	wrong := false
	if rapid.IntRange(0, 5).Draw(rt, "precondition") == 0 {
		demanded := rapid.IntRange(1, 4).Draw(rt, "version")
		pre.IfMatch = version.Of(int64(demanded))
		wrong = is == nil || is.version != demanded
	}
	_, made, err := w.Schedules.Put(rt.Context(), policy.Name{Tenant: w.Tenant, Workflow: w.Workflow, Key: key}, d.params(), "ann", pre)
	want := outcome("version_mismatch")
	if !wrong {
		want = w.upsert(key, d)
	}
	w.expect(rt, "put "+key, want, err)
	if err == nil && made != (is == nil) {
		rt.Fatalf("put %s: made is %t", key, made)
	}
}

func (w *ModelledHouse) Patch(rt *rapid.T) {
	key := w.key(rt)
	patch, is := map[string]any{}, w.Model[key]
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
	_, err = w.Schedules.Patch(rt.Context(), policy.Name{Tenant: w.Tenant, Workflow: w.Workflow, Key: key}, text, "bob", version.Precondition{})
	if is != nil {
		want = is.put(d, w.Clock.Now)
	}
	w.expect(rt, "patch "+key, want, err)
}

func (w *ModelledHouse) Pause(rt *rapid.T) {
	key := w.key(rt)
	var until time.Time
	var p schedules.PauseParams
	if rapid.Bool().Draw(rt, "until") {
		until = w.Clock.Now.Truncate(time.Second).Add(time.Duration(rapid.IntRange(1, 600).Draw(rt, "minutes")) * time.Minute)
		p.Until = &until
	}
	want := outcome("not_found")
	_, _, err := w.Schedules.Pause(rt.Context(), w.Tenant, w.Workflow, key, p, schedules.Changer{By: "ann"})
	if is := w.Model[key]; is != nil {
		want = is.pause(until, w.Clock.Now)
	}
	w.expect(rt, "pause "+key, want, err)
}

func (w *ModelledHouse) Resume(rt *rapid.T) {
	key, once := w.key(rt), rapid.Bool().Draw(rt, "fire once")
	want := outcome("not_found")
	_, _, err := w.Schedules.Resume(rt.Context(), w.Tenant, w.Workflow, key, schedules.ResumeParams{FireOnce: once}, schedules.Changer{By: "ann"})
	if is := w.Model[key]; is != nil {
		want = is.resume(once, w.Clock.Now)
	}
	w.expect(rt, "resume "+key, want, err)
}

func (w *ModelledHouse) Skip(rt *rapid.T) {
	key, n := w.key(rt), rapid.IntRange(1, 3).Draw(rt, "count")
	want := outcome("not_found")
	_, _, err := w.Schedules.Skip(rt.Context(), w.Tenant, w.Workflow, key, schedules.SkipParams{Count: &n}, schedules.Changer{By: "ann"})
	if is := w.Model[key]; is != nil {
		want = is.skip(n, w.Clock.Now)
	}
	w.expect(rt, "skip "+key, want, err)
}

func (w *ModelledHouse) Unskip(rt *rapid.T) {
	key := w.key(rt)
	want := outcome("not_found")
	_, _, err := w.Schedules.Unskip(rt.Context(), w.Tenant, w.Workflow, key, schedules.Changer{By: "ann"})
	if is := w.Model[key]; is != nil {
		is.unskip(w.Clock.Now)
		want = ""
	}
	w.expect(rt, "unskip "+key, want, err)
}

func (w *ModelledHouse) Delete(rt *rapid.T) {
	key := w.key(rt)
	want := outcome("not_found")
	err := w.Schedules.Delete(rt.Context(), w.Tenant, w.Workflow, key, schedules.Changer{By: "ann"})
	if w.Model[key] != nil {
		want = ""
		delete(w.Model, key)
	}
	w.expect(rt, "delete "+key, want, err)
}

// lines draws definitions of some keys, returns them as NDJSON lines of a sync or a bulk upsert, and applies them to the model.
func (w *ModelledHouse) lines(rt *rapid.T, sync bool) (body io.ReadCloser, listed map[string]bool, want []outcome) {
	var text strings.Builder
	listed = map[string]bool{}
	for _, key := range rapid.Permutation([]string{"a", "b", "c"}).Draw(rt, "keys")[:rapid.IntRange(1, 3).Draw(rt, "how many")] {
		d := w.draw(rt, w.Model[key])
		line, err := web.Marshal(bulk.Line{Workflow: w.Workflow, Key: &key, Params: d.params()})
		if err != nil {
			rt.Fatal(err)
		}
		text.Write(append(line, '\n'))
		if sync {
			d = w.Model[key].listed(d, w.Clock.Now)
		}
		listed[key], want = true, append(want, w.upsert(key, d))
	}
	return io.NopCloser(strings.NewReader(text.String())), listed, want
}

// gather returns a function that collects the outcome of each line in got.
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

func (w *ModelledHouse) Bulk(rt *rapid.T) {
	body, _, want := w.lines(rt, false)
	var got []outcome
	if _, err := w.InBulk.Upsert(rt.Context(), w.Tenant, "ann", body, gather(&got)); err != nil || !slices.Equal(got, want) {
		rt.Fatalf("bulk: got %q, %v, want %q", got, err, want)
	}
	w.OpenChunks(rt)
}

// Sync runs a sync that lists some of the keys.
func (w *ModelledHouse) Sync(rt *rapid.T) {
	w.Clock.Move(w.T, time.Second) // a sync ignores schedules that are made at the moment in which it begins
	unlisted := rapid.SampledFrom([]string{"keep", "pause", "delete"}).Draw(rt, "unlisted")
	body, listed, want := w.lines(rt, true)
	var got []outcome
	_, _, err := w.InBulk.Sync(rt.Context(), w.Tenant, "ann", bulk.SyncParams{Workflow: w.Workflow, Unlisted: unlisted}, body, gather(&got))
	if err != nil || !slices.Equal(got, want) {
		rt.Fatalf("sync: got %q, %v, want %q", got, err, want)
	}
	for key, is := range w.Model {
		switch {
		case listed[key] || slices.ContainsFunc(want, func(o outcome) bool { return o != "" }): // after a bad line, no unlisted schedule changes
		case unlisted == "delete":
			delete(w.Model, key)
		case unlisted == "pause":
			is.reconcile(w.Clock.Now)
		}
	}
	w.OpenChunks(rt)
}

// Wait lets time pass.
func (w *ModelledHouse) Wait(rt *rapid.T) {
	seconds := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(60, 4*60*60), rapid.IntRange(60*60, 30*60*60)).Draw(rt, "seconds")
	w.Clock.Move(w.T, time.Duration(seconds)*time.Second)
}

func (w *ModelledHouse) Sweep(rt *rapid.T) {
	w.SweepAll(rt)
	for _, m := range w.Model {
		m.sweep(w.Clock.Now)
	}
}

// Finish completes all running ticks, and hands out the ticks that these ends release.
func (w *ModelledHouse) Finish(rt *rapid.T) {
	w.Sweep(rt)
	w.complete(rt)
	for _, m := range w.Model {
		m.finish(w.Clock.Now)
	}
	w.SweepAll(rt)
}

func (w *ModelledHouse) complete(rt *rapid.T) {
	body, err := w.Dispatch.Leases.Lease(rt.Context(), w.Tenant, lease.LeaseParams{Workflows: []string{w.Workflow}, Max: new(1000), Worker: "w"}, nil)
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
	if _, err := w.Dispatch.Leases.Finish(rt.Context(), w.Tenant, ends); err != nil {
		rt.Fatal(err)
	}
}

// Clear takes the schedules of one run away, so that they do not burden the next.
func (w *ModelledHouse) Clear() {
	for key := range w.Model {
		if err := w.Schedules.Delete(w.T.Context(), w.Tenant, w.Workflow, key, schedules.Changer{By: "ann"}); err != nil {
			w.T.Error(err)
		}
	}
	w.Exec(`DELETE FROM delayed`)
	w.Exec(`DELETE FROM ready`)
}

// picture is the visible part of a schedule, in the model or as Carillon shows it.
type picture struct {
	Status   string
	Version  int
	Upcoming []time.Time
	Stats    schedules.Stats
	LastAt   time.Time
	History  []modelTick
}

func (w *ModelledHouse) Compare(rt *rapid.T) {
	for _, key := range []string{"a", "b", "c"} {
		s, err := w.Schedules.Get(rt.Context(), w.Tenant, w.Workflow, key)
		is := w.Model[key]
		if is == nil {
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "not_found" {
				rt.Fatalf("%s is there, %v, and the model has none", key, err)
			}
			continue
		}
		if err != nil {
			rt.Fatal(err)
		}
		if is.wake(w.Clock.Now); true {
			if diff := cmp.Diff(is.picture(w.Clock.Now), w.picture(s)); diff != "" {
				rt.Fatalf("%s at %s (-model +ours):\n%s", key, w.Clock.Now.Format(time.RFC3339), diff)
			}
		}
	}
}

func (w *ModelledHouse) picture(s schedules.Schedule) picture {
	p := picture{Status: s.Status, Version: int(s.Version), Stats: s.Stats}
	if len(s.Upcoming) > 0 {
		p.Upcoming = s.Upcoming
	}
	if s.LastAt != nil {
		p.LastAt = *s.LastAt
	}
	for _, t := range w.History(s.Workflow, s.Key) {
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
