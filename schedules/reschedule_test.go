package schedules_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func (h *home) reschedule(key string, at, to time.Time) schedules.Schedule {
	h.t.Helper()
	if _, _, err := h.schedules.Reschedule(h.t.Context(), h.acme, "w", key, schedules.RescheduleParams{At: at, To: to}, schedules.Changer{By: "bob"}); err != nil {
		h.t.Fatal(err)
	}
	return h.get(key)
}

func (h *home) unmoved(key string, at, to time.Time, code string) {
	h.t.Helper()
	_, _, err := h.schedules.Reschedule(h.t.Context(), h.acme, "w", key, schedules.RescheduleParams{At: at, To: to}, schedules.Changer{By: "bob"})
	status := 422
	if code == "not_active" {
		status = 409
	}
	faulty(h.t, err, status, code)
}

func wantUpcoming(t *testing.T, got schedules.Schedule, want ...time.Time) {
	t.Helper()
	if diff := cmp.Diff(want, got.Upcoming); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if len(want) > 0 && (got.NextAt == nil || !got.NextAt.Equal(want[0])) {
		t.Errorf("next_at is %v", got.NextAt)
	}
}

func TestMovedTickComesAtItsNewTime(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	u := h.put("a", spec(cron("0 12 * * *"))).Upcoming
	b := h.put("b", spec(cron("0 12 * * *")))
	got := h.reschedule("a", u[1], u[1].Add(-2*time.Hour))
	wantUpcoming(t, got, u[0], u[1].Add(-2*time.Hour), u[2], u[3], u[4])
	if got.Version != 1 || len(h.takeHanded()) != 0 {
		t.Errorf("got %+v", got)
	}
	got = h.reschedule("a", u[0], u[0].Add(90*time.Minute))
	wantUpcoming(t, got, u[0].Add(90*time.Minute), u[1].Add(-2*time.Hour), u[2], u[3], u[4])
	got = h.reschedule("a", u[1].Add(-2*time.Hour), u[1].Add(time.Hour)) // again
	wantUpcoming(t, got, u[0].Add(90*time.Minute), u[1].Add(time.Hour), u[2], u[3], u[4])
	got = h.reschedule("a", u[1].Add(time.Hour), u[1]) // and back
	wantUpcoming(t, got, u[0].Add(90*time.Minute), u[1], u[2], u[3], u[4])
	up, err := h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 1, time.Time{})
	if err != nil || !up.Ticks[0].Timestamp.Equal(u[0].Add(90*time.Minute)) {
		t.Errorf("got %+v, %v", up, err)
	}
	got = h.reschedule("a", u[0].Add(90*time.Minute), u[0])
	wantUpcoming(t, got, u...)
	if one[int](h, `SELECT count(DISTINCT c.hash)::int FROM member m JOIN cohort c ON c.id = m.cohort_id`) != 1 {
		t.Error("moved back, it is not of the cohort that it was of")
	}
	wantUpcoming(t, h.get("b"), b.Upcoming...)
}

func TestMoveOutlivesPausesAndOtherChangesButNotOfTheTiming(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	p := spec(cron("0 12 * * *"))
	u := h.put("a", p).Upcoming
	to := u[1].Add(time.Hour)
	moved := []time.Time{u[0], to, u[2], u[3], u[4]}
	wantUpcoming(t, h.reschedule("a", u[1], to), moved...)
	h.pause("a", schedules.PauseParams{})
	h.unmoved("a", u[1], to, "not_active")
	wantUpcoming(t, h.resume("a", schedules.ResumeParams{}), moved...)
	wantUpcoming(t, h.pause("a", schedules.PauseParams{Until: new(u[1].Add(time.Minute))}), to, u[2], u[3], u[4], u[4].AddDate(0, 0, 1))
	h.unmoved("a", u[2], u[1], "out_of_order")
	h.unmoved("a", to, u[1], "out_of_order") // while it is paused
	wantUpcoming(t, h.reschedule("a", to, to.Add(time.Hour)), to.Add(time.Hour), u[2], u[3], u[4], u[4].AddDate(0, 0, 1))
	wantUpcoming(t, h.reschedule("a", to.Add(time.Hour), to), to, u[2], u[3], u[4], u[4].AddDate(0, 0, 1))
	h.resume("a", schedules.ResumeParams{})

	p.Payload = []byte(`{"n":1}`)
	wantUpcoming(t, h.put("a", p), moved...)
	p.Policy = &policy.Policy{Missed: "all"} // another cohort
	wantUpcoming(t, h.put("a", p), moved...)
	p.Spec = cron("0 12 * * *", "0 12 * * *") // the same, written otherwise
	wantUpcoming(t, h.put("a", p), moved...)
	h.bulk("a", p)
	wantUpcoming(t, h.get("a"), moved...)
	p.Payload = []byte(`{"n":2}`)
	h.bulk("a", p)
	wantUpcoming(t, h.get("a"), moved...)

	p.Spec = cron("0 12 * * *", "30 12 * * 1")
	h.put("a", p)
	p.Spec = cron("0 12 * * *")
	wantUpcoming(t, h.put("a", p), u...)
	h.reschedule("a", u[1], to)
	p.Spec = cron("0 12 * * *", "30 12 * * 1")
	h.bulk("a", p)
	p.Spec = cron("0 12 * * *")
	wantUpcoming(t, h.put("a", p), u...)
	h.reschedule("a", u[1], to)
	h.delete("a")
	wantUpcoming(t, h.put("a", p), u...)
}

// bulk stores one line that must go in.
func (h *home) bulk(key string, p schedules.Params) {
	h.t.Helper()
	line, err := json.Marshal(struct {
		Workflow string `json:"workflow"`
		Key      string `json:"key"`
		schedules.Params
	}{"w", key, p})
	if err != nil {
		h.t.Fatal(err)
	}
	if _, sum := h.upsertBulk(string(line)); sum.Errors != 0 {
		h.t.Fatalf("got %+v", sum)
	}
}

func TestMoveKeepsTheOrderAndTheLimit(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	limited := spec(cron("0 12 * * *"))
	limited.Spec.MaxTicks = new(3)
	u := h.put("a", limited).Upcoming
	last := u[2].Add(23 * time.Hour)
	wantUpcoming(t, h.reschedule("a", u[2], last), u[0], u[1], last)
	wantUpcoming(t, h.reschedule("a", u[0], u[0].Add(time.Second)), u[0].Add(time.Second), u[1], last)
	for _, c := range []struct {
		at, to time.Time
		code   string
	}{
		{u[0], u[0].Add(time.Hour), "not_coming"}, // it has been moved
		{u[1].Add(time.Minute), u[1], "not_coming"},
		{last.Add(time.Hour), last.AddDate(0, 0, 1), "not_coming"},
		{time.Now().Add(-time.Hour), u[1], "not_coming"},
		{u[1], last, "out_of_order"},
		{u[1], last.Add(time.Second), "out_of_order"},
		{u[1], u[0].Add(time.Second), "out_of_order"},
		{last, u[2].AddDate(0, 0, 1), "out_of_order"}, // the spec names that, though the limit is reached
		{u[1], u[1].Add(time.Millisecond), "invalid"},
		{u[0].Add(time.Second), time.Now().Add(-time.Second).Truncate(time.Second), "has_passed"},
	} {
		h.unmoved("a", c.at, c.to, c.code)
	}
	ends := spec(cron("0 12 * * *"))
	ends.Spec.EndAt = new(u[1].Format("2006-01-02T15:04:05"))
	h.put("b", ends)
	h.unmoved("b", u[1], u[1].Add(time.Second), "out_of_order")
	h.put("c", spec(cron("*/10 * * * *")))
	first := h.get("c").Upcoming[0].AddDate(0, 0, 1)
	for i := range 100 {
		at := first.Add(time.Duration(i) * 10 * time.Minute)
		h.reschedule("c", at, at.Add(time.Minute))
	}
	far := first.AddDate(0, 0, 1)
	h.unmoved("c", far, far.Add(time.Minute), "too_many_moves")
}

func TestSettledScheduleIsBackWithTheOthers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	u := h.put("a", spec(cron("0 12 * * *"))).Upcoming
	h.put("b", spec(cron("0 12 * * *")))
	h.reschedule("a", u[0], u[0].Add(time.Minute))
	if err := h.schedules.Settle(t.Context(), h.acme, "w", "a"); err != nil {
		t.Fatal(err)
	}
	if one[int](h, `SELECT count(DISTINCT c.hash)::int FROM member m JOIN cohort c ON c.id = m.cohort_id`) != 2 {
		t.Fatal("settled before its tick came")
	}
	back := u[0].AddDate(0, 0, -9)
	h.exec(`UPDATE schedule SET moved_until = $1, moves = jsonb_set(jsonb_set(moves, '{0,at}', to_jsonb($2::text)), '{0,to}', to_jsonb($3::text)) WHERE key = 'a'`,
		back.Add(time.Minute), back.Format(time.RFC3339), back.Add(time.Minute).Format(time.RFC3339))
	if err := h.schedules.Settle(t.Context(), h.acme, "w", "a"); err != nil {
		t.Fatal(err)
	}
	wantUpcoming(t, h.get("a"), u...)
	if one[int](h, `SELECT count(DISTINCT c.hash)::int FROM member m JOIN cohort c ON c.id = m.cohort_id`) != 1 || one[int](h, `SELECT jsonb_array_length(moves) FROM schedule WHERE key = 'a' AND moved_until IS NULL`) != 1 {
		t.Error("it is not back, or has forgotten what was moved")
	}
}

func TestRescheduleOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	made := e.want(201, "", "PUT", aPath, daily)
	u := made.doc["upcoming"].([]any)
	first, err := time.Parse(time.RFC3339, u[0].(string))
	if err != nil {
		t.Fatal(err)
	}
	to := first.Add(time.Hour).Format(time.RFC3339)
	body := fmt.Sprintf(`{"at":%q,"to":%q}`, u[0], to)
	for range 2 { // the second is the first
		got := e.want(200, "", "POST", aPath+"/reschedule", body, "Idempotency-Key", "k", "If-Match", `"1"`)
		if got.doc["next_at"] != to || got.header.Get("ETag") != `"1"` {
			t.Errorf("got %s", got.body)
		}
	}
	got := e.want(422, "not_coming", "POST", aPath+"/reschedule", body)
	if detail := got.doc["detail"].(string); !strings.Contains(detail, to) {
		t.Errorf("got %s, which does not name the nearest", detail)
	}
	for _, c := range []struct {
		status     int
		code, body string
	}{
		{422, "invalid", `{}`},
		{422, "required", `{"at":"2090-01-01T12:00:00Z"}`},
		{422, "has_passed", fmt.Sprintf(`{"at":%q,"to":"2020-01-01T12:00:00Z"}`, to)},
		{422, "out_of_order", fmt.Sprintf(`{"at":%q,"to":"2090-01-01T12:00:00Z"}`, to)},
		{422, "not_coming", `{"at":"0000-01-01T00:00:00Z","to":"9999-12-31T23:59:59Z"}`},
		{422, "not_coming", `{"at":"9999-12-31T23:59:59Z","to":"0000-01-01T00:00:00Z"}`},
		{400, "unknown_field", `{"from":1}`},
	} {
		e.want(c.status, c.code, "POST", aPath+"/reschedule", c.body)
	}
	e.want(412, "version_mismatch", "POST", aPath+"/reschedule", body, "If-Match", `"9"`)
	e.want(404, "not_found", "POST", "/v1/workflows/w/schedules/none/reschedule", body)
	e.want(403, "insufficient_scope", "POST", aPath+"/reschedule", body, "Authorization", "Bearer "+e.token("acme", tenants.SchedulesRead))
	e.want(200, "", "POST", aPath+"/pause", "")
	e.want(409, "not_active", "POST", aPath+"/reschedule", body)
}
