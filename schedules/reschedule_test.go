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
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func reschedule(h *schedulestest.Fixture, key string, at, to time.Time) schedules.Schedule {
	h.T.Helper()
	if _, _, err := h.Schedules.Reschedule(h.T.Context(), h.Acme, "w", key, schedules.RescheduleParams{At: at, To: to}, schedules.Changer{By: "bob"}); err != nil {
		h.T.Fatal(err)
	}
	return h.Get(key)
}

func unmoved(h *schedulestest.Fixture, key string, at, to time.Time, code string) {
	h.T.Helper()
	_, _, err := h.Schedules.Reschedule(h.T.Context(), h.Acme, "w", key, schedules.RescheduleParams{At: at, To: to}, schedules.Changer{By: "bob"})
	status := 422
	if code == "not_active" {
		status = 409
	}
	schedulestest.WantFault(h.T, err, status, code)
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
	h := schedulestest.New(t)
	u := h.Put("a", schedulestest.ByCron("0 12 * * *")).Upcoming
	b := h.Put("b", schedulestest.ByCron("0 12 * * *"))
	got := reschedule(h, "a", u[1], u[1].Add(-2*time.Hour))
	wantUpcoming(t, got, u[0], u[1].Add(-2*time.Hour), u[2], u[3], u[4])
	if got.Version != 1 || len(h.TakeHanded()) != 0 {
		t.Errorf("got %+v", got)
	}
	got = reschedule(h, "a", u[0], u[0].Add(90*time.Minute))
	wantUpcoming(t, got, u[0].Add(90*time.Minute), u[1].Add(-2*time.Hour), u[2], u[3], u[4])
	got = reschedule(h, "a", u[1].Add(-2*time.Hour), u[1].Add(time.Hour)) // again
	wantUpcoming(t, got, u[0].Add(90*time.Minute), u[1].Add(time.Hour), u[2], u[3], u[4])
	got = reschedule(h, "a", u[1].Add(time.Hour), u[1]) // and back
	wantUpcoming(t, got, u[0].Add(90*time.Minute), u[1], u[2], u[3], u[4])
	up, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 1, time.Time{})
	if err != nil || !up.Ticks[0].Timestamp.Equal(u[0].Add(90*time.Minute)) {
		t.Errorf("got %+v, %v", up, err)
	}
	got = reschedule(h, "a", u[0].Add(90*time.Minute), u[0])
	wantUpcoming(t, got, u...)
	if schedulestest.One[int](h, `SELECT count(DISTINCT c.hash)::int FROM member m JOIN cohort c ON c.id = m.cohort_id`) != 1 {
		t.Error("moved back, it is not of the cohort that it was of")
	}
	wantUpcoming(t, h.Get("b"), b.Upcoming...)
}

func TestMoveOutlivesPausesAndOtherChangesButNotOfTheTiming(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	p := schedulestest.ByCron("0 12 * * *")
	u := h.Put("a", p).Upcoming
	to := u[1].Add(time.Hour)
	moved := []time.Time{u[0], to, u[2], u[3], u[4]}
	wantUpcoming(t, reschedule(h, "a", u[1], to), moved...)
	h.Pause("a", schedules.PauseParams{})
	unmoved(h, "a", u[1], to, "not_active")
	wantUpcoming(t, h.Resume("a", schedules.ResumeParams{}), moved...)
	wantUpcoming(t, h.Pause("a", schedules.PauseParams{Until: new(u[1].Add(time.Minute))}), to, u[2], u[3], u[4], u[4].AddDate(0, 0, 1))
	unmoved(h, "a", u[2], u[1], "out_of_order")
	unmoved(h, "a", to, u[1], "out_of_order") // while it is paused
	wantUpcoming(t, reschedule(h, "a", to, to.Add(time.Hour)), to.Add(time.Hour), u[2], u[3], u[4], u[4].AddDate(0, 0, 1))
	wantUpcoming(t, reschedule(h, "a", to.Add(time.Hour), to), to, u[2], u[3], u[4], u[4].AddDate(0, 0, 1))
	h.Resume("a", schedules.ResumeParams{})

	p.Payload = []byte(`{"n":1}`)
	wantUpcoming(t, h.Put("a", p), moved...)
	p.Policy = &policy.Policy{Missed: "all"} // another cohort
	wantUpcoming(t, h.Put("a", p), moved...)
	p.Spec = schedulestest.Cron("0 12 * * *", "0 12 * * *") // the same, written otherwise
	wantUpcoming(t, h.Put("a", p), moved...)
	putInBulk(h, "a", p)
	wantUpcoming(t, h.Get("a"), moved...)
	p.Payload = []byte(`{"n":2}`)
	putInBulk(h, "a", p)
	wantUpcoming(t, h.Get("a"), moved...)

	p.Spec = schedulestest.Cron("0 12 * * *", "30 12 * * 1")
	h.Put("a", p)
	p.Spec = schedulestest.Cron("0 12 * * *")
	wantUpcoming(t, h.Put("a", p), u...)
	reschedule(h, "a", u[1], to)
	p.Spec = schedulestest.Cron("0 12 * * *", "30 12 * * 1")
	putInBulk(h, "a", p)
	p.Spec = schedulestest.Cron("0 12 * * *")
	wantUpcoming(t, h.Put("a", p), u...)
	reschedule(h, "a", u[1], to)
	h.Delete("a")
	wantUpcoming(t, h.Put("a", p), u...)
}

// putInBulk stores a schedule as one line, and fails the test if the line has a fault.
func putInBulk(h *schedulestest.Fixture, key string, p schedules.Params) {
	h.T.Helper()
	line, err := json.Marshal(struct {
		Workflow string `json:"workflow"`
		Key      string `json:"key"`
		schedules.Params
	}{"w", key, p})
	if err != nil {
		h.T.Fatal(err)
	}
	if _, sum := h.UpsertBulk(string(line)); sum.Errors != 0 {
		h.T.Fatalf("got %+v", sum)
	}
}

func TestMoveKeepsTheOrderAndTheLimit(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	limited := schedulestest.ByCron("0 12 * * *")
	limited.Spec.MaxTicks = new(3)
	u := h.Put("a", limited).Upcoming
	last := u[2].Add(23 * time.Hour)
	wantUpcoming(t, reschedule(h, "a", u[2], last), u[0], u[1], last)
	wantUpcoming(t, reschedule(h, "a", u[0], u[0].Add(time.Second)), u[0].Add(time.Second), u[1], last)
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
		unmoved(h, "a", c.at, c.to, c.code)
	}
	ends := schedulestest.ByCron("0 12 * * *")
	ends.Spec.EndAt = new(u[1].Format("2006-01-02T15:04:05"))
	h.Put("b", ends)
	unmoved(h, "b", u[1], u[1].Add(time.Second), "out_of_order")
	h.Put("c", schedulestest.ByCron("*/10 * * * *"))
	first := h.Get("c").Upcoming[0].AddDate(0, 0, 1)
	for i := range 100 {
		at := first.Add(time.Duration(i) * 10 * time.Minute)
		reschedule(h, "c", at, at.Add(time.Minute))
	}
	far := first.AddDate(0, 0, 1)
	unmoved(h, "c", far, far.Add(time.Minute), "too_many_moves")
}

func TestSettledScheduleIsBackWithTheOthers(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	u := h.Put("a", schedulestest.ByCron("0 12 * * *")).Upcoming
	h.Put("b", schedulestest.ByCron("0 12 * * *"))
	reschedule(h, "a", u[0], u[0].Add(time.Minute))
	if err := h.Schedules.Settle(t.Context(), h.Acme, "w", "a"); err != nil {
		t.Fatal(err)
	}
	if schedulestest.One[int](h, `SELECT count(DISTINCT c.hash)::int FROM member m JOIN cohort c ON c.id = m.cohort_id`) != 2 {
		t.Fatal("settled before its tick came")
	}
	back := u[0].AddDate(0, 0, -9)
	h.Exec(`UPDATE schedule SET moved_until = $1, moves = jsonb_set(jsonb_set(moves, '{0,at}', to_jsonb($2::text)), '{0,to}', to_jsonb($3::text)) WHERE key = 'a'`,
		back.Add(time.Minute), back.Format(time.RFC3339), back.Add(time.Minute).Format(time.RFC3339))
	if err := h.Schedules.Settle(t.Context(), h.Acme, "w", "a"); err != nil {
		t.Fatal(err)
	}
	wantUpcoming(t, h.Get("a"), u...)
	if schedulestest.One[int](h, `SELECT count(DISTINCT c.hash)::int FROM member m JOIN cohort c ON c.id = m.cohort_id`) != 1 || schedulestest.One[int](h, `SELECT jsonb_array_length(moves) FROM schedule WHERE key = 'a' AND moved_until IS NULL`) != 1 {
		t.Error("it is not back, or has forgotten what was moved")
	}
}

func TestRescheduleOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	made := e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
	u := made.Doc["upcoming"].([]any)
	first, err := time.Parse(time.RFC3339, u[0].(string))
	if err != nil {
		t.Fatal(err)
	}
	to := first.Add(time.Hour).Format(time.RFC3339)
	body := fmt.Sprintf(`{"at":%q,"to":%q}`, u[0], to)
	for range 2 { // the second is the first
		got := e.Want(200, "", "POST", schedulestest.SchedulePath+"/reschedule", body, "Idempotency-Key", "k", "If-Match", `"1"`)
		if got.Doc["next_at"] != to || got.Header.Get("ETag") != `"1"` {
			t.Errorf("got %s", got.Body)
		}
	}
	got := e.Want(422, "not_coming", "POST", schedulestest.SchedulePath+"/reschedule", body)
	if detail := got.Doc["detail"].(string); !strings.Contains(detail, to) {
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
		e.Want(c.status, c.code, "POST", schedulestest.SchedulePath+"/reschedule", c.body)
	}
	e.Want(412, "version_mismatch", "POST", schedulestest.SchedulePath+"/reschedule", body, "If-Match", `"9"`)
	e.Want(404, "not_found", "POST", "/v1/workflows/w/schedules/none/reschedule", body)
	e.Want(403, "insufficient_scope", "POST", schedulestest.SchedulePath+"/reschedule", body, "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
	e.Want(200, "", "POST", schedulestest.SchedulePath+"/pause", "")
	e.Want(409, "not_active", "POST", schedulestest.SchedulePath+"/reschedule", body)
}
