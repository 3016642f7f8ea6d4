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
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

const actionsPath = "/v1/schedules/actions"

func TestActionsOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, key := range []string{"a", "b", "c"} {
		e.Put(key, schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Labels: map[string]string{"first": fmt.Sprint(key == "a")}})
	}
	body := `{"action":"pause","filter":{"label":"first:false"}}`
	a := e.Want(202, "", "POST", actionsPath, body, "Idempotency-Key", "k")
	again := e.Want(202, "", "POST", actionsPath, body, "Idempotency-Key", "k")
	id := fmt.Sprint(a.Doc["id"])
	if a.Header.Get("Location") != "/v1/operations/"+id || again.Body != a.Body || again.Header.Get("Location") != a.Header.Get("Location") {
		t.Errorf("got %v %s, then %v %s", a.Header, a.Body, again.Header, again.Body)
	}
	e.Want(422, "idempotency_key_reused", "POST", actionsPath, `{"action":"resume","filter":{"all":true}}`, "Idempotency-Key", "k")
	e.Operate(id)
	a = e.Want(200, "", "GET", "/v1/operations/"+id, "")
	if a.Doc["state"] != "succeeded" || fmt.Sprintf("%v %v", a.Doc["counts"], a.Doc["done"]) != "map[paused:2] 2" {
		t.Errorf("got %s", a.Body)
	}
	for key, status := range map[string]string{"a": "active", "b": "paused", "c": "paused"} {
		if got := e.Get(key); got.Status != status {
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
		e.Want(422, code, "POST", actionsPath, body)
	}
	e.Exec(`INSERT INTO operation (tenant_id, kind, started_by, params) SELECT $1, 'count', 'ann', '{}' FROM generate_series(1, 100)`, e.Acme)
	e.Want(409, "too_many_operations", "POST", actionsPath, body)
	e.Want(403, "insufficient_scope", "POST", actionsPath, body, "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
}

// An action on many schedules has the same results as single changes of the same schedules for another tenant.
func TestActionsAreManySingleOnes(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		lines := rapid.SliceOfN(schedulestest.DrawLine(w), 1, 8).Draw(rt, "lines")
		h.Quotas = tenants.Wide()
		h.UpsertBulk(schedulestest.NDJSON(t, lines...))
		h.PutEach(rt, lines)
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			h.ChangeBetween(rt, w)
			h.TakeHanded()
			action := rapid.SampledFrom([]string{"pause", "resume", "delete"}).Draw(rt, "action")
			h.Act(action, schedules.ActionFilter{Workflow: w})
			handed := handedOf(h)
			for _, key := range []string{"a", "b", "c", "d"} {
				by := schedules.Changer{By: "bob"}
				switch action { // of one that is not there or cannot be, nothing comes
				case "pause":
					_, _, _ = h.Schedules.Pause(h.Theirs(), h.Other, w, key, schedules.PauseParams{}, by)
				case "resume":
					_, _, _ = h.Schedules.Resume(h.Theirs(), h.Other, w, key, schedules.ResumeParams{}, by)
				case "delete":
					_ = h.Schedules.Delete(h.Theirs(), h.Other, w, key, by)
				}
			}
			if diff := cmp.Diff(handedOf(h), handed); diff != "" {
				rt.Fatalf("handed out (-single +action):\n%s", diff)
			}
			if diff := cmp.Diff(h.Dump(h.Other, w), h.Dump(h.Acme, w)); diff != "" {
				rt.Fatalf("stored (-single +%s):\n%s", action, diff)
			}
			if diff := cmp.Diff(versions(h, h.Other, w), versions(h, h.Acme, w)); diff != "" {
				rt.Fatalf("revisions (-single +%s):\n%s", action, diff)
			}
		}
	})
}

// handedOf returns the due ticks that were handed out since the last call, by time.
func handedOf(h *schedulestest.Fixture) map[string]int {
	handed := map[string]int{}
	for _, d := range h.TakeHanded() {
		handed[fmt.Sprint(d.Run.At, d.Missed, d.Forced)]++
	}
	return handed
}

// versions returns all stored versions of a workflow's schedules.
func versions(h *schedulestest.Fixture, tenant tenants.ID, w string) string {
	h.T.Helper()
	return schedulestest.One[string](h, `
		SELECT COALESCE(string_agg(concat_ws(' ', key, version, status, changed_by, ended_by, deleted, next_before, next_after), E'\n' ORDER BY key, schedule_id, version), '')
		FROM revision
		WHERE tenant_id = $1 AND workflow = $2`, tenant, w)
}

func TestAFilterPicksWhatAListShows(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	soon := time.Now().Add(time.Hour)
	later := fmt.Sprintf("0 %d * * *", time.Now().UTC().Add(12*time.Hour).Hour())
	for i, key := range []string{"a1", "a2", "b1", "b2"} {
		s := schedulestest.Cron(later)
		if i%2 == 0 {
			s = schedulestest.Cron("* * * * *")
		}
		h.Put(key, schedulestest.Spec(s))
	}
	h.Pause("b1", schedules.PauseParams{})
	if _, _, err := h.Schedules.Put(h.Theirs(), policy.Name{Tenant: h.Other, Workflow: "w", Key: "a1"}, schedulestest.ByCron("* * * * *"), "eve", version.Precondition{}); err != nil {
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
		if got := fmt.Sprint(h.Act(c.action, c.filter).Counts); got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.action, c.filter, got, c.want)
		}
	}
	if page, _, err := h.Schedules.List(h.Theirs(), h.Other, schedules.Filter{}, 10, ""); err != nil || len(page) != 1 || page[0].Version != 1 {
		t.Errorf("the other tenant has %+v, %v", page, err)
	}
}

// Retiming moves a schedule to the present time of its spec, and makes no version.
func TestRetime(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	want := h.Put("a", schedulestest.ByCron("0 12 * * *"))
	h.Exec(`UPDATE cohort SET next_at = next_at + interval '1 hour', due_at = due_at + interval '1 hour'`)
	if got := h.Act("retime", schedules.ActionFilter{All: true}); got.Counts["retimed"] != 1 {
		t.Errorf("got %+v", got)
	}
	if got := schedulestest.One[time.Time](h, `SELECT next_at FROM cohort WHERE tenant_id = $1`, h.Acme); !got.Equal(*want.NextAt) {
		t.Errorf("it fires at %s, want %s", got, want.NextAt)
	}
	h.Put("b", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 13 * * *"}, MaxTicks: new(5)}})
	for _, table := range []string{"cohort", "cohort_timing"} {
		h.Exec(`UPDATE ` + table + ` SET hash = '\x00112233445566778899aabbccddeeff' WHERE id = (SELECT cohort_id FROM schedule WHERE key = 'b')`)
	}
	before := h.Get("b")
	if got := h.Act("retime", schedules.ActionFilter{Workflow: "w", KeyPrefix: "b"}); got.Counts["retimed"] != 1 {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(before, h.Get("b")); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if got := schedulestest.One[int](h, `SELECT count(*) FROM cohort c JOIN member m ON m.cohort_id = c.id JOIN schedule s ON s.id = m.schedule_id WHERE s.key = 'b' AND c.hash <> '\x00112233445566778899aabbccddeeff' AND s.ticks_left = 5`); got != 1 {
		t.Errorf("%d members of the other cohort", got)
	}
}

// An operation whose runner dies within a step acts on each schedule once.
func TestActionsOutliveTheirRunner(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	var lines strings.Builder
	const many = 2500
	for i := range many {
		lines.WriteString(schedulestest.DailyLine(fmt.Sprint("k", i)))
	}
	h.UpsertBulk(lines.String())
	begun, _, err := h.Actions.Act(t.Context(), h.Acme, schedules.ActionParams{Action: "pause", Filter: &schedules.ActionFilter{All: true}}, schedules.Changer{By: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	steps := 0
	h.Schedules.Operations.Register("actions", func(ctx context.Context, tx pgx.Tx, op *operations.Operation) (bool, error) {
		done, err := schedules.ActStep(h.Actions, ctx, tx, op)
		if steps++; steps == 2 {
			kill()
		}
		return done, err
	})
	if err := h.Schedules.Operations.Run(ctx, schedulestest.OperationNumber(t, begun.ID)); err == nil {
		t.Error("the runner was not killed")
	}
	if got := h.Operation(begun.ID); got.Done != 1000 || got.State != operations.Running {
		t.Errorf("got %+v", got)
	}
	ended := h.Operate(begun.ID)
	for began := time.Now(); ended.State == operations.Running && time.Since(began) < 3*time.Minute; { // until the server knows that the runner is gone
		ended = h.Operate(begun.ID)
	}
	if ended.State != operations.Succeeded || ended.Counts["paused"] != many {
		t.Errorf("got %+v", ended)
	}
	if got := schedulestest.One[string](h, `SELECT concat_ws(' ', count(*), min(version), max(version), min(status), (SELECT count(*) FROM revision), (SELECT count(*) FROM member)) FROM schedule`); got != "2500 2 2 paused 2500 0" {
		t.Errorf("got %s", got)
	}
}
