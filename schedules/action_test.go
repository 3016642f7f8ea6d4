package schedules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const actionsPath = "/v1/schedules/actions"

// act does an action to all of acme's schedules that a filter picks.
func (h *home) act(action string, f schedules.ActionFilter) operations.Answer {
	h.t.Helper()
	op := h.acted(action, f)
	if op.State != operations.Succeeded {
		h.t.Fatalf("got %+v", op)
	}
	return op
}

// acted is the operation that does an action, as it ended.
func (h *home) acted(action string, f schedules.ActionFilter) operations.Answer {
	h.t.Helper()
	op, _, err := h.schedules.Act(h.t.Context(), h.acme, schedules.ActionParams{Action: action, Filter: f}, schedules.Changer{By: "bob"})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.operate(op.ID)
}

func TestActionsOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, key := range []string{"a", "b", "c"} {
		e.put(key, schedules.Params{Spec: cron("0 12 * * *"), Labels: map[string]string{"first": fmt.Sprint(key == "a")}})
	}
	body := `{"action":"pause","filter":{"label":"first:false"}}`
	a := e.want(202, "", "POST", actionsPath, body, "Idempotency-Key", "k")
	again := e.want(202, "", "POST", actionsPath, body, "Idempotency-Key", "k")
	id := fmt.Sprint(a.doc["id"])
	if a.header.Get("Location") != "/v1/operations/"+id || again.body != a.body || again.header.Get("Location") != a.header.Get("Location") {
		t.Errorf("got %v %s, then %v %s", a.header, a.body, again.header, again.body)
	}
	e.want(422, "idempotency_key_reused", "POST", actionsPath, `{"action":"resume","filter":{"all":true}}`, "Idempotency-Key", "k")
	e.operate(id)
	a = e.want(200, "", "GET", "/v1/operations/"+id, "")
	if a.doc["state"] != "succeeded" || fmt.Sprintf("%v %v", a.doc["counts"], a.doc["done"]) != "map[paused:2] 2" {
		t.Errorf("got %s", a.body)
	}
	for key, status := range map[string]string{"a": "active", "b": "paused", "c": "paused"} {
		if got := e.get(key); got.Status != status {
			t.Errorf("%s is %s", key, got.Status)
		}
	}
	for body, code := range map[string]string{
		`{"action":"pause","filter":{}}`:                                  "invalid",
		`{"action":"pause"}`:                                              "invalid",
		`{"action":"burn","filter":{"all":true}}`:                         "invalid",
		`{"action":"pause","filter":{"all":true,"workflow":"w"}}`:         "invalid",
		`{"action":"pause","filter":{"key_prefix":"a","label":"x:y"}}`:    "invalid",
		`{"action":"pause","filter":{"status":"asleep"}}`:                 "invalid",
		`{"action":"pause","filter":{"due_before":"soon"}}`:               "invalid",
		`{"action":"pause","filter":{"workflow":"w w","key_prefix":"a"}}`: "invalid",
	} {
		e.want(422, code, "POST", actionsPath, body)
	}
	e.exec(`INSERT INTO operation (tenant_id, kind, started_by, params) SELECT $1, 'count', 'ann', '{}' FROM generate_series(1, 100)`, e.acme)
	e.want(409, "too_many_operations", "POST", actionsPath, body)
	e.want(403, "insufficient_scope", "POST", actionsPath, body, "Authorization", "Bearer "+e.token("acme", tenants.SchedulesRead))
}

// What an action makes of many is what its single form makes of each, for another tenant, one by one.
func TestActionsAreManySingleOnes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		lines := rapid.SliceOfN(drawLine(w), 1, 8).Draw(rt, "lines")
		h.quotas = tenants.Wide()
		h.upsertBulk(ndjson(t, lines...))
		h.putEach(rt, lines)
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			h.disturb(rt, w)
			h.takeHanded()
			action := rapid.SampledFrom([]string{"pause", "resume", "delete"}).Draw(rt, "action")
			h.act(action, schedules.ActionFilter{Workflow: w})
			handed := h.handedOf()
			for _, key := range []string{"a", "b", "c", "d"} {
				by := schedules.Changer{By: "bob"}
				switch action { // of one that is not there or cannot be, nothing comes
				case "pause":
					_, _, _ = h.schedules.Pause(h.theirs(), h.other, w, key, schedules.PauseParams{}, by)
				case "resume":
					_, _, _ = h.schedules.Resume(h.theirs(), h.other, w, key, schedules.ResumeParams{}, by)
				case "delete":
					_ = h.schedules.Delete(h.theirs(), h.other, w, key, by)
				}
			}
			if diff := cmp.Diff(h.handedOf(), handed); diff != "" {
				rt.Fatalf("handed out (-single +action):\n%s", diff)
			}
			if diff := cmp.Diff(h.picture(h.other, w), h.picture(h.acme, w)); diff != "" {
				rt.Fatalf("stored (-single +%s):\n%s", action, diff)
			}
			if diff := cmp.Diff(h.versions(h.other, w), h.versions(h.acme, w)); diff != "" {
				rt.Fatalf("revisions (-single +%s):\n%s", action, diff)
			}
		}
	})
}

// handedOf is what was handed out since it was last asked, by time.
func (h *home) handedOf() map[string]int {
	handed := map[string]int{}
	for _, d := range h.takeHanded() {
		handed[fmt.Sprint(d.Run.At, d.Missed, d.Forced)]++
	}
	return handed
}

// versions are all that is kept of a workflow's past.
func (h *home) versions(tenant tenants.ID, w string) string {
	h.t.Helper()
	return one[string](h, `
		SELECT COALESCE(string_agg(concat_ws(' ', key, version, status, changed_by, ended_by, deleted, next_before, next_after), E'\n' ORDER BY key, schedule_id, version), '')
		FROM revision
		WHERE tenant_id = $1 AND workflow = $2`, tenant, w)
}

func TestAFilterPicksWhatAListShows(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	soon := time.Now().Add(time.Hour)
	later := fmt.Sprintf("0 %d * * *", time.Now().UTC().Add(12*time.Hour).Hour())
	for i, key := range []string{"a1", "a2", "b1", "b2"} {
		s := cron(later)
		if i%2 == 0 {
			s = cron("* * * * *")
		}
		h.put(key, spec(s))
	}
	h.pause("b1", schedules.PauseParams{})
	if _, _, err := h.schedules.Put(h.theirs(), policy.Name{Tenant: h.other, Workflow: "w", Key: "a1"}, spec(cron("* * * * *")), "eve", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		filter schedules.ActionFilter
		action string
		want   string
	}{
		{schedules.ActionFilter{KeyPrefix: "b", Status: "active"}, "pause", "map[paused:1]"},
		{schedules.ActionFilter{DueBefore: &soon}, "pause", "map[paused:1]"},
		{schedules.ActionFilter{Workflow: "w", Status: "paused"}, "resume", "map[resumed:3]"},
		{schedules.ActionFilter{All: true}, "retime", "map[unchanged:4]"},
		{schedules.ActionFilter{Workflow: "v"}, "delete", "map[]"},
		{schedules.ActionFilter{KeyPrefix: "a"}, "delete", "map[deleted:2]"},
	} {
		if got := fmt.Sprint(h.act(c.action, c.filter).Counts); got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.action, c.filter, got, c.want)
		}
	}
	if page, _, err := h.schedules.List(h.theirs(), h.other, schedules.Filter{}, 10, ""); err != nil || len(page) != 1 || page[0].Version != 1 {
		t.Errorf("the other tenant has %+v, %v", page, err)
	}
}

// Retiming has a cohort fire when its spec says so by now, and makes no version.
func TestRetime(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	want := h.put("a", spec(cron("0 12 * * *")))
	h.exec(`UPDATE cohort SET next_at = next_at + interval '1 hour', due_at = due_at + interval '1 hour'`)
	if got := h.act("retime", schedules.ActionFilter{All: true}); got.Counts["retimed"] != 1 {
		t.Errorf("got %+v", got)
	}
	if got := one[time.Time](h, `SELECT next_at FROM cohort WHERE tenant_id = $1`, h.acme); !got.Equal(*want.NextAt) {
		t.Errorf("it fires at %s, want %s", got, want.NextAt)
	}
	h.put("b", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 13 * * *"}, MaxTicks: new(5)}})
	for _, table := range []string{"cohort", "cohort_timing"} {
		h.exec(`UPDATE ` + table + ` SET hash = '\x00112233445566778899aabbccddeeff' WHERE id = (SELECT cohort_id FROM schedule WHERE key = 'b')`)
	}
	before := h.get("b")
	if got := h.act("retime", schedules.ActionFilter{Workflow: "w", KeyPrefix: "b"}); got.Counts["retimed"] != 1 {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(before, h.get("b")); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if got := one[int](h, `SELECT count(*) FROM cohort c JOIN member m ON m.cohort_id = c.id JOIN schedule s ON s.id = m.schedule_id WHERE s.key = 'b' AND c.hash <> '\x00112233445566778899aabbccddeeff' AND s.ticks_left = 5`); got != 1 {
		t.Errorf("%d members of the other cohort", got)
	}
}

// An operation whose runner dies within a step acts on each schedule once.
func TestActionsOutliveTheirRunner(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var lines strings.Builder
	const many = 2500
	for i := range many {
		lines.WriteString(dailyLine(fmt.Sprint("k", i)))
	}
	h.upsertBulk(lines.String())
	begun, _, err := h.schedules.Act(t.Context(), h.acme, schedules.ActionParams{Action: "pause", Filter: schedules.ActionFilter{All: true}}, schedules.Changer{By: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	steps := 0
	h.schedules.Operations.Register("actions", func(ctx context.Context, tx pgx.Tx, op *operations.Operation) (bool, error) {
		done, err := schedules.ActStep(h.schedules, ctx, tx, op)
		if steps++; steps == 2 {
			kill()
		}
		return done, err
	})
	if err := h.schedules.Operations.Run(ctx, number(t, begun.ID)); err == nil {
		t.Error("the runner was not killed")
	}
	if got := h.operation(begun.ID); got.Done != 1000 || got.State != operations.Running {
		t.Errorf("got %+v", got)
	}
	ended := h.operate(begun.ID)
	for began := time.Now(); ended.State == operations.Running && time.Since(began) < 3*time.Minute; { // until the server knows that the runner is gone
		ended = h.operate(begun.ID)
	}
	if ended.State != operations.Succeeded || ended.Counts["paused"] != many {
		t.Errorf("got %+v", ended)
	}
	if got := one[string](h, `SELECT concat_ws(' ', count(*), min(version), max(version), min(status), (SELECT count(*) FROM revision), (SELECT count(*) FROM member)) FROM schedule`); got != "2500 2 2 paused 2500 0" {
		t.Errorf("got %s", got)
	}
}
