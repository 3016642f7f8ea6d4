package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// A client's clock has fractions of seconds. A pause that ends within a second lasts to the end of that second.
func TestAPauseUntilAMomentWithinASecond(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", schedulestest.SchedulePath, schedulestest.DailyBody)
	for until, code := range map[string]string{"9999-12-31T23:59:59.5Z": "invalid", "9999-12-31T23:59:59-00:01": "out_of_range", "0000-01-01T00:00:00+00:01": "out_of_range"} {
		e.Want(422, code, "POST", schedulestest.SchedulePath+"/pause", fmt.Sprintf(`{"until":%q}`, until))
	}
	e.Want(200, "", "POST", schedulestest.SchedulePath+"/pause", `{"until":"9999-12-31T23:59:59Z"}`)
	if got := e.Want(200, "", "POST", schedulestest.SchedulePath+"/pause", `{"until":"2090-01-01T00:00:00.001Z"}`); got.Doc["paused_until"] != "2090-01-01T00:00:01Z" {
		t.Errorf("got %s", got.Body)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	first := h.Put("a", schedulestest.ByCron("0 12 * * *"))
	paused := h.Pause("a", schedules.PauseParams{Note: new("leave")})
	if paused.Status != policy.Paused || paused.Version != 2 || paused.NextAt != nil || len(paused.Upcoming) != 0 || *paused.StatusNote != "leave" || paused.UpdatedBy != "bob" {
		t.Errorf("got %+v", paused)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM member`); n != 0 {
		t.Errorf("%d members fire", n)
	}
	if p, err := h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 2, time.Time{}); err != nil || len(p.Ticks) != 2 || !p.Ticks[0].Timestamp.Equal(*first.NextAt) {
		t.Errorf("it would fire %v %v", p, err)
	}
	if diff := cmp.Diff(paused, h.Pause("a", schedules.PauseParams{Note: new("leave")})); diff != "" {
		t.Errorf("paused again:\n%s", diff)
	}
	resumed := h.Resume("a", schedules.ResumeParams{})
	if resumed.Status != policy.Active || resumed.Version != 3 || !resumed.NextAt.Equal(*first.NextAt) || resumed.StatusNote != nil {
		t.Errorf("got %+v", resumed)
	}
	if diff := cmp.Diff(resumed, h.Resume("a", schedules.ResumeParams{FireOnce: true})); diff != "" {
		t.Errorf("resumed again:\n%s", diff)
	}
	if handed := h.TakeHanded(); len(handed) != 0 {
		t.Errorf("%v were handed out", handed)
	}
}

func TestAPausedScheduleStaysPaused(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	for name, p := range map[string]schedules.PauseParams{"for good": {}, "until": {Until: &until}} {
		h.Put(name, schedulestest.ByCron("0 12 * * *"))
		h.Pause(name, p)
		s := h.Put(name, schedulestest.ByCron("0 12,13 * * *"))
		if s.Status != policy.Paused || s.Version != 3 || !same(s.PausedUntil, p.Until) {
			t.Errorf("%s: after an upsert got %+v", name, s)
		}
		if s.NextAt == nil != (p.Until == nil) || s.NextAt != nil && !s.NextAt.Equal(until) {
			t.Errorf("%s: the next tick is at %v", name, s.NextAt)
		}
		if s = h.Put(name, schedules.Params{Spec: schedulestest.Cron("0 12,13 * * *"), Status: "paused"}); s.Version != 3 {
			t.Errorf("%s: paused again, the version is %d", name, s.Version)
		}
		if s = h.Put(name, schedules.Params{Spec: schedulestest.Cron("0 12,13 * * *"), Status: "active"}); s.Status != policy.Active || s.NextAt == nil || s.PausedUntil != nil {
			t.Errorf("%s: got %+v", name, s)
		}
	}
	s := h.Put("born paused", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Status: "paused"})
	if s.Status != policy.Paused || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	if s = h.Resume("born paused", schedules.ResumeParams{}); s.NextAt == nil {
		t.Errorf("got %+v", s)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM member`); n != 3 {
		t.Errorf("%d of 3 fire", n)
	}
}

func same(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }

func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 * * * *"))
	until := time.Now().UTC().Truncate(time.Hour).Add(48 * time.Hour)
	s := h.Pause("a", schedules.PauseParams{Until: &until, Note: new("leave")})
	if s.Status != policy.Paused || !s.PausedUntil.Equal(until) || !s.NextAt.Equal(until) {
		t.Errorf("got %+v", s)
	}
	later := until.Add(time.Hour)
	if s = h.Pause("a", schedules.PauseParams{Until: &later}); !s.NextAt.Equal(later) || s.Version != 3 {
		t.Errorf("got %+v", s)
	}
	if got := schedulestest.One[bool](h, `SELECT paused_at < updated_at FROM schedule`); !got {
		t.Error("paused for longer, it is paused since then only")
	}
	h.Exec(`UPDATE schedule SET paused_until = now() - interval '1 minute'`)
	h.Exec(`UPDATE member SET from_at = now() - interval '1 minute'`)
	s = h.Get("a")
	if s.Status != policy.Active || s.PausedUntil != nil || s.StatusNote != nil || s.NextAt == nil {
		t.Errorf("after its end got %+v", s)
	}
	if page, _, err := h.Schedules.List(t.Context(), h.Acme, schedules.Filter{Status: policy.Active}, 10, ""); err != nil || len(page) != 1 {
		t.Errorf("active are %v %v", page, err)
	}
	if again := h.Resume("a", schedules.ResumeParams{}); again.Version != s.Version {
		t.Errorf("resumed, got %+v", again)
	}
	if s = h.Pause("a", schedules.PauseParams{}); s.Status != policy.Paused || s.PausedUntil != nil {
		t.Errorf("paused anew, got %+v", s)
	}
	_, _, err := h.Schedules.Pause(t.Context(), h.Acme, "w", "a", schedules.PauseParams{Until: new(time.Unix(1, 0))}, schedules.Changer{})
	schedulestest.WantFault(t, err, 422, "invalid")
}

func TestAPauseBeyondTheLastTickCompletes(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	at := time.Now().UTC().Truncate(time.Hour).Add(24 * time.Hour)
	h.Put("a", schedulestest.Spec(calendar.Spec{At: []string{at.Format(time.RFC3339)}}))
	until := at.Add(time.Hour)
	if s := h.Pause("a", schedules.PauseParams{Until: &until}); s.Status != policy.Paused || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	if s := h.Resume("a", schedules.ResumeParams{}); s.Status != policy.Active || !s.NextAt.Equal(at) {
		t.Errorf("resumed in time, got %+v", s)
	}
	h.Pause("a", schedules.PauseParams{Until: &until})
	h.Exec(`UPDATE schedule SET paused_until = now() - interval '1 minute'`)
	if s := h.Get("a"); s.Status != policy.Completed || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	page, _, err := h.Schedules.List(t.Context(), h.Acme, schedules.Filter{Status: policy.Completed}, 10, "")
	if err != nil || len(page) != 1 || page[0].Status != policy.Completed {
		t.Errorf("completed are %v %v", page, err)
	}
}

func TestResumeFiresOnceWhatWasMissed(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	latest := h.Put("a", schedulestest.ByCron(schedulestest.EachHour(30))).NextAt.Add(-time.Hour)
	h.Pause("a", schedules.PauseParams{})
	h.Resume("a", schedules.ResumeParams{FireOnce: true})
	if handed := h.TakeHanded(); len(handed) != 0 {
		t.Fatalf("nothing was missed, and %v was handed out", handed)
	}
	h.Pause("a", schedules.PauseParams{})
	h.Exec(`UPDATE schedule SET paused_at = $1`, latest.Add(-3*time.Hour-time.Minute))
	h.Resume("a", schedules.ResumeParams{FireOnce: true})
	handed := h.TakeHanded()
	if len(handed) != 1 {
		t.Fatalf("got %v, want one", handed)
	}
	due := handed[0]
	if !due.Forced || due.Missed != 3 || !due.Run.At.Equal(latest) || due.Schedule != schedulestest.One[int64](h, `SELECT id FROM schedule`) || due.Cohort != schedulestest.One[int64](h, `SELECT cohort_id FROM schedule`) || due.Tenant != h.Acme {
		t.Errorf("got %+v", due)
	}
	h.Pause("a", schedules.PauseParams{})
	h.Exec(`UPDATE schedule SET paused_at = paused_at - interval '3 hours'`)
	h.Resume("a", schedules.ResumeParams{})
	if handed := h.TakeHanded(); len(handed) != 0 {
		t.Errorf("it was not asked for, and %v was handed out", handed)
	}
}

func TestResumeOfWhatIsOverCompletes(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	at := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	h.Put("a", schedulestest.Spec(calendar.Spec{At: []string{at.Format(time.RFC3339)}}))
	h.Pause("a", schedules.PauseParams{})
	at = at.Add(-2 * time.Hour)
	h.Exec(`UPDATE schedule SET paused_at = paused_at - interval '3 hours', spec = $1`, `{"at":["`+at.Format(time.RFC3339)+`"]}`)
	s := h.Resume("a", schedules.ResumeParams{FireOnce: true})
	if s.Status != policy.Completed || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	if handed := h.TakeHanded(); len(handed) != 1 || !handed[0].Run.At.Equal(at) || handed[0].Missed != 0 {
		t.Errorf("got %v", handed)
	}
	_, _, err := h.Schedules.Resume(t.Context(), h.Acme, "w", "a", schedules.ResumeParams{}, schedules.Changer{})
	schedulestest.WantFault(t, err, 409, "not_paused")
	_, _, err = h.Schedules.Pause(t.Context(), h.Acme, "w", "a", schedules.PauseParams{}, schedules.Changer{})
	schedulestest.WantFault(t, err, 409, "not_active")
}

func TestACompletedScheduleIsNotFiredAgain(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	three := schedulestest.Cron("0 12 * * *")
	three.MaxTicks = new(3)
	h.Put("a", schedulestest.Spec(three))
	h.Exec(`DELETE FROM member`)
	h.Exec(`UPDATE schedule SET status = 'completed', cohort_id = NULL`)
	for _, status := range []string{"", "active", "paused"} {
		s := h.Put("a", schedules.Params{Spec: three, Status: status})
		if s.Status != policy.Completed || s.Version != 1 || s.NextAt != nil {
			t.Errorf("put with status %q: got %+v", status, s)
		}
	}
	if s := h.Put("a", schedules.Params{Spec: three, Payload: web.Raw(`1`)}); s.Status != policy.Completed || s.Version != 2 {
		t.Errorf("with another payload got %+v", s)
	}
	three.MaxTicks = new(2)
	if s := h.Put("a", schedulestest.Spec(three)); s.Status != policy.Active || len(s.Upcoming) != 2 {
		t.Errorf("with another spec got %+v", s)
	}
}

func TestAnExhaustedCohortIsNoObstacle(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`) // as after its last time
	h.Put("b", schedulestest.ByCron("0 12 * * *"))
	if s := h.Put("a", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Payload: web.Raw(`1`)}); s.Version != 2 {
		t.Errorf("got %+v", s)
	}
	if s := h.Put("a", schedulestest.ByCron("0 13 * * *")); s.NextAt == nil {
		t.Errorf("got %+v", s)
	}
	h.Pause("a", schedules.PauseParams{})
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL, empty_at = now()`) // as the sweep leaves an empty one
	h.Resume("a", schedules.ResumeParams{})
	if n := schedulestest.One[int](h, `SELECT count(*) FROM schedule s JOIN cohort c ON c.id = s.cohort_id WHERE key = 'a' AND c.due_at = c.next_at AND c.empty_at IS NULL`); n != 1 {
		t.Error("its cohort sleeps")
	}
}

func TestWhatIsDueIsHandedOutBeforeAChange(t *testing.T) {
	t.Parallel()
	hourly := schedulestest.EachHour(30)
	changes := map[string]func(h *schedulestest.Fixture){
		"retimed": func(h *schedulestest.Fixture) { h.Put("a", schedulestest.ByCron("1 1 1 1 *")) },
		"paused":  func(h *schedulestest.Fixture) { h.Pause("a", schedules.PauseParams{}) },
		"put paused": func(h *schedulestest.Fixture) {
			h.Put("a", schedules.Params{Spec: schedulestest.Cron(hourly), Status: "paused"})
		},
		"deleted": func(h *schedulestest.Fixture) { h.Delete("a") },
		"policy": func(h *schedulestest.Fixture) {
			h.Put("a", schedules.Params{Spec: schedulestest.Cron(hourly), Policy: &policy.Policy{Missed: "none"}})
		},
		"not changed": func(h *schedulestest.Fixture) {
			h.Put("a", schedules.Params{Spec: schedulestest.Cron(hourly), Payload: web.Raw(`1`)})
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := schedulestest.New(t)
			s := h.Put("a", schedulestest.ByCron(hourly))
			h.Put("b", schedulestest.ByCron(hourly))
			id, cohort := schedulestest.One[int64](h, `SELECT id FROM schedule WHERE key = 'a'`), schedulestest.One[int64](h, `SELECT cohort_id FROM schedule WHERE key = 'a'`)
			h.Backdate(3 * time.Hour)
			latest := s.NextAt.Add(-time.Hour)
			if due := h.Get("a"); !due.NextAt.Equal(latest) {
				t.Errorf("what is due is at %s, the next is shown at %s", latest, due.NextAt)
			}
			change(h)
			handed := h.TakeHanded()
			if name == "not changed" {
				if len(handed) != 0 {
					t.Errorf("got %v", handed)
				}
				return
			}
			if len(handed) != 1 {
				t.Fatalf("got %v, want one", handed)
			}
			if due := handed[0]; due.Schedule != id || due.Cohort != cohort || !due.Run.At.Equal(latest) || due.Missed != 2 || due.Forced {
				t.Errorf("got %+v", due)
			}
		})
	}
}

func TestAllThatIsDueIsHandedOutInOrder(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	s := h.Put("a", schedules.Params{Spec: schedulestest.Cron(schedulestest.EachHour(30)), Policy: &policy.Policy{Missed: "all"}})
	h.Backdate(5 * time.Hour)
	h.Exec(`UPDATE member SET from_at = from_at + interval '2 hours'`) // it joined when two had passed
	h.Delete("a")
	var got []time.Time
	for _, due := range h.TakeHanded() {
		got = append(got, due.Run.At)
	}
	if diff := cmp.Diff([]time.Time{s.NextAt.Add(-3 * time.Hour), s.NextAt.Add(-2 * time.Hour), s.NextAt.Add(-time.Hour)}, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestARunUnderWayIsHandedOutToWhomItHasNotReached(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	hourly := schedulestest.EachHour(30)
	for _, key := range []string{"a", "b", "c"} {
		h.Put(key, schedulestest.ByCron(hourly))
	}
	h.Exec(`UPDATE member SET from_at = from_at - interval '3 hours'`)
	h.Exec(`UPDATE cohort SET run_at = next_at - interval '1 hour', run_from = next_at - interval '2 hours', run_missed = 1, run_drop = false,
		at_phase = 0, at_id = (SELECT id FROM schedule WHERE key = 'b')`)
	h.Pause("b", schedules.PauseParams{})
	if handed := h.TakeHanded(); len(handed) != 0 {
		t.Errorf("the run has reached b, and %v was handed out", handed)
	}
	h.Pause("c", schedules.PauseParams{})
	handed := h.TakeHanded()
	if len(handed) != 1 || handed[0].Missed != 1 || !handed[0].Run.At.Equal(schedulestest.One[time.Time](h, `SELECT run_at FROM cohort`)) {
		t.Errorf("got %v", handed)
	}
}

func TestABrokenScheduleIsAlone(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	h.Put("b", schedulestest.ByCron("0 13 * * *"))
	h.Pause("a", schedules.PauseParams{})
	h.Exec(`UPDATE schedule SET spec = '{"timezone":"Gone/Zone","cron":["0 12 * * *"]}' WHERE key = 'a'`)
	page, _, err := h.Schedules.List(t.Context(), h.Acme, schedules.Filter{}, 10, "")
	if err != nil || len(page) != 2 || len(page[0].Warnings) != 1 || page[0].Warnings[0].Code != "not_computable" || page[1].NextAt == nil {
		t.Errorf("got %+v %v", page, err)
	}
	_, _, err = h.Schedules.Resume(t.Context(), h.Acme, "w", "a", schedules.ResumeParams{}, schedules.Changer{})
	schedulestest.WantFault(t, err, 409, "not_active")
	if s := h.Put("a", schedules.Params{Spec: schedulestest.Cron("0 14 * * *"), Status: "active"}); s.NextAt == nil {
		t.Errorf("mended, got %+v", s)
	}
	h.Exec(`UPDATE schedule SET status = 'quarantined', cohort_id = NULL, spec = '{"cron":["x"]}' WHERE key = 'a'`)
	h.Exec(`DELETE FROM member m USING schedule s WHERE s.id = m.schedule_id AND s.key = 'a'`)
	_, err = h.Schedules.Upcoming(t.Context(), h.Acme, "w", "a", 5, time.Time{})
	schedulestest.WantFault(t, err, 422, "not_computable")
	if s := h.Put("a", schedulestest.ByCron("0 15 * * *")); s.Status != policy.Active || s.NextAt == nil {
		t.Errorf("out of quarantine, got %+v", s)
	}
	h.Exec(`UPDATE schedule SET spec = '{"cron":["x"]}' WHERE key = 'a'`)
	h.Delete("a")
}
