package schedules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// An action takes each member of a list's filter, or names the schedules by their keys.
func TestActionsPickWhatListsPick(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	for _, key := range []string{"a1", "a2", "b/1", "b2"} {
		h.Put(key, schedulestest.ByCron("0 12 * * *"))
	}
	paris := schedulestest.ByCron("0 12 * * *")
	paris.Spec.Timezone, paris.Subject = "Europe/Paris", "ann"
	h.Put("c1", paris)
	h.SetFailures(1, `s.key = 'a2'`)
	for i, c := range []struct {
		p    schedules.ActionParams
		want string
	}{
		{schedules.ActionParams{Filter: &schedules.ActionFilter{Key: "a1"}}, "a1"},
		{schedules.ActionParams{Filter: &schedules.ActionFilter{KeyContains: "2"}}, "a2 b2"},
		{schedules.ActionParams{Filter: &schedules.ActionFilter{Subject: "ann"}}, "c1"},
		{schedules.ActionParams{Filter: &schedules.ActionFilter{Subject: "a1", Workflow: "w"}}, "a1"},
		{schedules.ActionParams{Filter: &schedules.ActionFilter{Timezone: "Europe/Paris"}}, "c1"},
		{schedules.ActionParams{Filter: &schedules.ActionFilter{Timezone: "UTC", Workflow: "w"}}, "a1 a2 b/1 b2"},
		{schedules.ActionParams{Filter: &schedules.ActionFilter{Failing: true}}, "a2"},
		{schedules.ActionParams{Keys: []string{"w/b/1", "w/a1", "w/a1", "w/absent"}}, "a1 b/1"},
	} {
		c.p.Action = "pause"
		preview, err := h.Actions.DryRun(t.Context(), h.Acme, c.p)
		if err != nil {
			t.Fatal(err)
		}
		var sampled []string
		for _, one := range preview.Sample {
			sampled = append(sampled, one.Key)
		}
		if n := int64(len(strings.Fields(c.want))); strings.Join(sampled, " ") != c.want || preview.Matched != n || preview.Changed != n {
			t.Errorf("%d: a dry run tells %+v, want %s", i, preview, c.want)
		}
		op := h.Do(c.p)
		if got := strings.Join(pausedKeys(h), " "); got != c.want || op.Done != int64(len(strings.Fields(c.want))) {
			t.Errorf("%d: paused %s, want %s: %+v", i, got, c.want, op)
		}
		if len(c.p.Keys) > 0 && op.Counts["not_found"] != 1 {
			t.Errorf("got %+v", op.Counts)
		}
		if strings.Contains(string(op.Params), "absent") {
			t.Errorf("the operation keeps the keys: %s", op.Params)
		}
		h.Act("resume", schedules.ActionFilter{All: true})
	}
}

func pausedKeys(h *schedulestest.Fixture) (keys []string) {
	h.T.Helper()
	page, _, err := h.Schedules.List(h.T.Context(), h.Acme, schedules.Filter{Status: "paused"}, 1000, "")
	if err != nil {
		h.T.Fatal(err)
	}
	for _, one := range page {
		keys = append(keys, one.Key)
	}
	return keys
}

// A pause of many schedules says why, and until when.
func TestAPauseOfManyHasANoteAndAnEnd(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	p := schedules.ActionParams{Action: "pause", Filter: &schedules.ActionFilter{All: true}, Note: new("maintenance"), Until: &until}
	for _, want := range []string{"map[paused:1]", "map[unchanged:1]"} {
		if got := fmt.Sprint(h.Do(p).Counts); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	got := h.Get("a")
	if got.Status != "paused" || got.StatusNote == nil || *got.StatusNote != "maintenance" || got.PausedUntil == nil || !got.PausedUntil.Equal(until) || got.NextAt == nil {
		t.Errorf("got %+v", got)
	}
}

// Skipping, patching and triggering many schedules does to each what the single request does.
func TestSkipPatchAndTriggerOfMany(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	for _, key := range []string{"a", "b", "held"} {
		h.Put(key, schedulestest.ByCron("0 12 * * *"))
	}
	h.Pause("b", schedules.PauseParams{})
	before := h.Get("a")
	if got := fmt.Sprint(h.Do(schedules.ActionParams{Action: "skip", Filter: &schedules.ActionFilter{All: true}, Count: new(2)}).Counts); got != "map[not_possible:1 skipped:2]" {
		t.Errorf("got %s", got)
	}
	if got := h.Get("a"); !got.NextAt.Equal(before.Upcoming[2].UTC()) || got.Version != before.Version {
		t.Errorf("the next tick after two left out is at %s, want %s", got.NextAt, before.Upcoming[2])
	}
	if got := h.Do(schedules.ActionParams{Action: "trigger", Filter: &schedules.ActionFilter{All: true}}); fmt.Sprint(got.Counts) != "map[not_possible:1 triggered:2]" {
		t.Errorf("got %+v", got)
	}
	if got := h.Triggered(); !slices.Equal(got, []string{"w/a", "w/b"}) {
		t.Errorf("triggered %v", got)
	}
	patch := schedules.ActionParams{Action: "patch", Filter: &schedules.ActionFilter{All: true}, Patch: []byte(`{"payload": [1,  2], "spec":{"cron":["0 13 * * *"]}}`)}
	for _, want := range []string{"map[patched:3]", "map[unchanged:3]"} {
		if op := h.Do(patch); fmt.Sprint(op.Counts) != want {
			got := fmt.Sprint(op.Counts, string(op.Result))
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := h.Get("b"); string(got.Payload) != `[1,  2]` || got.Spec.Cron[0] != "0 13 * * *" || got.Status != "paused" || got.Version != 3 {
		t.Errorf("got %+v", got)
	}
	patch.Patch = []byte(`{"spec":{"cron":["0 0 30 2 *"]}}`)
	if got := h.Do(patch); fmt.Sprint(got.Counts) != "map[refused:3]" || string(got.Result) != `{"refused":{"never_fires":3}}` {
		t.Errorf("got %+v %s", got.Counts, got.Result)
	}
	if got := h.Get("a"); got.Spec.Cron[0] != "0 13 * * *" {
		t.Errorf("a refused patch was stored: %+v", got.Spec)
	}
}

// A patch that makes many schedules follow their subjects gives each the zone of its subject.
func TestManySchedulesBeginToFollowTheirSubjects(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	for _, key := range []string{"a", "b", "c"} {
		h.Put(key, schedulestest.ByCron("0 12 * * *"))
	}
	h.PutSubject("a", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	h.PutSubject("b", subjects.SubjectParams{Timezone: "Europe/Paris"})
	got := h.Do(schedules.ActionParams{Action: "patch", Filter: &schedules.ActionFilter{Workflow: "w"}, Patch: []byte(`{"spec":{"timezone":"@subject"}}`)})
	if fmt.Sprint(got.Counts) != "map[patched:2 refused:1]" || string(got.Result) != `{"refused":{"no_subject_zone":1}}` {
		t.Errorf("got %+v %s", got.Counts, got.Result)
	}
	for key, zone := range map[string]string{"a": "Asia/Tokyo", "b": "Europe/Paris", "c": "UTC"} {
		if got := h.Get(key); got.TimezoneInForce != zone || !got.NextAt.Equal(h.NextOf(zone, "0 12 * * *")) {
			t.Errorf("%s fires in %s at %s", key, got.TimezoneInForce, got.NextAt)
		}
	}
}

// Undoing a bulk pause brings back what was there before, whatever others paused and resumed before it and since.
func TestABulkPauseIsUndoneExactly(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	single := []func(key string){
		func(string) {},
		func(key string) { h.Pause(key, schedules.PauseParams{}) },
		func(key string) { h.Pause(key, schedules.PauseParams{Note: new("by hand")}) },
		func(key string) { h.Pause(key, schedules.PauseParams{Until: &until, Note: new("an hour")}) },
		func(key string) { h.Resume(key, schedules.ResumeParams{}) },
		func(key string) { h.Resume(key, schedules.ResumeParams{}); h.Pause(key, schedules.PauseParams{}) },
	}
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		note := rapid.SampledFrom([]*string{nil, new("incident")}).Draw(rt, "note")
		before := map[string]string{}
		key := func(n int) string { return fmt.Sprintf("%s-%d", w, n) }
		n := rapid.IntRange(1, 6).Draw(rt, "schedules")
		for i := range n {
			h.Put(key(i), schedulestest.ByCron("0 12 * * *"))
			single[rapid.IntRange(0, 3).Draw(rt, "before")](key(i))
			before[key(i)] = pauseOf(h.Get(key(i)))
		}
		op := h.Do(schedules.ActionParams{Action: "pause", Filter: &schedules.ActionFilter{KeyPrefix: w + "-"}, Note: note})
		want := map[string]string{}
		for i := range n {
			paused := pauseOf(h.Get(key(i)))
			since := rapid.IntRange(0, 5).Draw(rt, "since")
			single[since](key(i))
			if since == 0 {
				want[key(i)] = before[key(i)]
			} else {
				want[key(i)] = pauseOf(h.Get(key(i)))
			}
			if paused == before[key(i)] && since == 0 {
				want[key(i)] = paused
			}
		}
		h.Do(schedules.ActionParams{Action: "resume", Filter: &schedules.ActionFilter{Operation: op.ID}})
		for i := range n {
			if got := pauseOf(h.Get(key(i))); got != want[key(i)] {
				rt.Errorf("%s is %s after the undo, want %s", key(i), got, want[key(i)])
			}
		}
		again := h.Do(schedules.ActionParams{Action: "resume", Filter: &schedules.ActionFilter{Operation: op.ID}})
		if again.Done != 0 {
			rt.Errorf("undone twice: %+v", again.Counts)
		}
	})
}

func pauseOf(s schedules.Schedule) string {
	text := s.Status
	if s.StatusNote != nil {
		text += " " + *s.StatusNote
	}
	if s.PausedUntil != nil {
		text += " until"
	}
	return text
}

// A filter by operation takes only a pause of the tenant that has ended.
func TestOnlyAnEndedPauseIsUndone(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Put("a", schedulestest.ByCron("0 12 * * *"))
	pause := e.Want(202, "", "POST", actionsPath, `{"action":"pause","filter":{"all":true}}`)
	id := fmt.Sprint(pause.Doc["id"])
	undo := func(id string) string {
		return fmt.Sprintf(`{"action":"resume","filter":{"operation":%q}}`, id)
	}
	e.Want(409, "operation_running", "POST", actionsPath, undo(id))
	e.Operate(id)
	retime := e.Act("retime", schedules.ActionFilter{All: true})
	e.Want(422, "invalid", "POST", actionsPath, undo(retime.ID))
	e.Want(422, "invalid", "POST", actionsPath, undo("op_nonsense"))
	a := e.Want(200, "", "POST", actionsPath, fmt.Sprintf(`{"action":"resume","dry_run":true,"filter":{"operation":%q}}`, id))
	if fmt.Sprintf("%v %v", a.Doc["matched"], a.Doc["changed"]) != "1 1" {
		t.Errorf("got %s", a.Body)
	}
	undone := e.Want(202, "", "POST", actionsPath, undo(id))
	e.Operate(fmt.Sprint(undone.Doc["id"]))
	if got := e.Get("a"); got.Status != "active" {
		t.Errorf("it is %s", got.Status)
	}
	for _, body := range []string{
		`{"action":"pause"}`,
		`{"action":"pause","keys":[]}`,
		`{"action":"pause","keys":["w"]}`,
		`{"action":"pause","keys":["w/a"],"filter":{"all":true}}`,
		`{"action":"resume","filter":{"all":true},"until":"2030-01-01T00:00:00Z"}`,
		`{"action":"pause","filter":{"all":true},"until":"2020-01-01T00:00:00Z"}`,
		`{"action":"pause","filter":{"all":true},"count":2}`,
		`{"action":"skip","filter":{"all":true},"count":0}`,
		`{"action":"patch","filter":{"all":true}}`,
		`{"action":"patch","filter":{"all":true},"patch":{"subject":"ann"}}`,
		`{"action":"pause","filter":{"all":true,"operation":"` + id + `"}}`,
		`{"action":"pause","filter":{"key":"a","operation":"` + id + `"}}`,
	} {
		if a := e.Ask("POST", actionsPath, body); a.Status != 422 {
			t.Errorf("%s is answered with %d %s", body, a.Status, a.Body)
		}
	}
	a = e.Want(422, "unknown_field", "POST", actionsPath, `{"action":"patch","filter":{"all":true},"patch":{"spec":{"crom":"x"}}}`)
	if !strings.Contains(a.Body, `"/patch/spec/crom"`) {
		t.Errorf("got %s", a.Body)
	}
}
