package schedules_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.put("a", spec(cron("0 12 * * *")))
	paused := h.pause("a", schedules.PauseParams{Note: new("leave")})
	if paused.Status != policy.Paused || paused.Version != 2 || paused.NextAt != nil || len(paused.Upcoming) != 0 || *paused.StatusNote != "leave" || paused.UpdatedBy != "bob" {
		t.Errorf("got %+v", paused)
	}
	if n := one[int](h, `SELECT count(*) FROM member`); n != 0 {
		t.Errorf("%d members fire", n)
	}
	if p, err := h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 2, time.Time{}); err != nil || len(p.Ticks) != 2 || !p.Ticks[0].Timestamp.Equal(*first.NextAt) {
		t.Errorf("it would fire %v %v", p, err)
	}
	if diff := cmp.Diff(paused, h.pause("a", schedules.PauseParams{Note: new("leave")})); diff != "" {
		t.Errorf("paused again:\n%s", diff)
	}
	resumed := h.resume("a", schedules.ResumeParams{})
	if resumed.Status != policy.Active || resumed.Version != 3 || !resumed.NextAt.Equal(*first.NextAt) || resumed.StatusNote != nil {
		t.Errorf("got %+v", resumed)
	}
	if diff := cmp.Diff(resumed, h.resume("a", schedules.ResumeParams{FireOnce: true})); diff != "" {
		t.Errorf("resumed again:\n%s", diff)
	}
	if handed := h.takeHanded(); len(handed) != 0 {
		t.Errorf("%v were handed out", handed)
	}
}

func TestAPausedScheduleStaysPaused(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	for name, p := range map[string]schedules.PauseParams{"for good": {}, "until": {Until: &until}} {
		h.put(name, spec(cron("0 12 * * *")))
		h.pause(name, p)
		s := h.put(name, spec(cron("0 12,13 * * *")))
		if s.Status != policy.Paused || s.Version != 3 || !same(s.PausedUntil, p.Until) {
			t.Errorf("%s: after an upsert got %+v", name, s)
		}
		if s.NextAt == nil != (p.Until == nil) || s.NextAt != nil && !s.NextAt.Equal(until) {
			t.Errorf("%s: the next tick is at %v", name, s.NextAt)
		}
		if s = h.put(name, schedules.Params{Spec: cron("0 12,13 * * *"), Status: "paused"}); s.Version != 3 {
			t.Errorf("%s: paused again, the version is %d", name, s.Version)
		}
		if s = h.put(name, schedules.Params{Spec: cron("0 12,13 * * *"), Status: "active"}); s.Status != policy.Active || s.NextAt == nil || s.PausedUntil != nil {
			t.Errorf("%s: got %+v", name, s)
		}
	}
	s := h.put("born paused", schedules.Params{Spec: cron("0 12 * * *"), Status: "paused"})
	if s.Status != policy.Paused || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	if s = h.resume("born paused", schedules.ResumeParams{}); s.NextAt == nil {
		t.Errorf("got %+v", s)
	}
	if n := one[int](h, `SELECT count(*) FROM member`); n != 3 {
		t.Errorf("%d of 3 fire", n)
	}
}

func same(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }

func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 * * * *")))
	until := time.Now().UTC().Truncate(time.Hour).Add(48 * time.Hour)
	s := h.pause("a", schedules.PauseParams{Until: &until, Note: new("leave")})
	if s.Status != policy.Paused || !s.PausedUntil.Equal(until) || !s.NextAt.Equal(until) {
		t.Errorf("got %+v", s)
	}
	later := until.Add(time.Hour)
	if s = h.pause("a", schedules.PauseParams{Until: &later}); !s.NextAt.Equal(later) || s.Version != 3 {
		t.Errorf("got %+v", s)
	}
	if got := one[bool](h, `SELECT paused_at < updated_at FROM schedule`); !got {
		t.Error("paused for longer, it is paused since then only")
	}
	h.exec(`UPDATE schedule SET paused_until = now() - interval '1 minute'`)
	h.exec(`UPDATE member SET from_at = now() - interval '1 minute'`)
	s = h.get("a")
	if s.Status != policy.Active || s.PausedUntil != nil || s.StatusNote != nil || s.NextAt == nil {
		t.Errorf("after its end got %+v", s)
	}
	if page, _, err := h.schedules.List(t.Context(), h.acme, schedules.Filter{Status: policy.Active}, 10, ""); err != nil || len(page) != 1 {
		t.Errorf("active are %v %v", page, err)
	}
	if again := h.resume("a", schedules.ResumeParams{}); again.Version != s.Version {
		t.Errorf("resumed, got %+v", again)
	}
	if s = h.pause("a", schedules.PauseParams{}); s.Status != policy.Paused || s.PausedUntil != nil {
		t.Errorf("paused anew, got %+v", s)
	}
	_, _, err := h.schedules.Pause(t.Context(), h.acme, "w", "a", schedules.PauseParams{Until: new(time.Unix(1, 0))}, schedules.Changer{})
	faulty(t, err, 422, "invalid")
}

func TestAPauseBeyondTheLastTickCompletes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	at := time.Now().UTC().Truncate(time.Hour).Add(24 * time.Hour)
	h.put("a", spec(calendar.Spec{At: []string{at.Format(time.RFC3339)}}))
	until := at.Add(time.Hour)
	if s := h.pause("a", schedules.PauseParams{Until: &until}); s.Status != policy.Paused || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	if s := h.resume("a", schedules.ResumeParams{}); s.Status != policy.Active || !s.NextAt.Equal(at) {
		t.Errorf("resumed in time, got %+v", s)
	}
	h.pause("a", schedules.PauseParams{Until: &until})
	h.exec(`UPDATE schedule SET paused_until = now() - interval '1 minute'`)
	if s := h.get("a"); s.Status != policy.Completed || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	page, _, err := h.schedules.List(t.Context(), h.acme, schedules.Filter{Status: policy.Completed}, 10, "")
	if err != nil || len(page) != 1 || page[0].Status != policy.Completed {
		t.Errorf("completed are %v %v", page, err)
	}
}

func TestResumeFiresOnceWhatWasMissed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 * * * *")))
	h.pause("a", schedules.PauseParams{})
	h.resume("a", schedules.ResumeParams{FireOnce: true})
	if handed := h.takeHanded(); len(handed) != 0 {
		t.Fatalf("nothing was missed, and %v was handed out", handed)
	}
	h.pause("a", schedules.PauseParams{})
	h.exec(`UPDATE schedule SET paused_at = date_trunc('hour', now()) - interval '3 hours 1 minute'`)
	h.resume("a", schedules.ResumeParams{FireOnce: true})
	handed := h.takeHanded()
	if len(handed) != 1 {
		t.Fatalf("got %v, want one", handed)
	}
	due, hour := handed[0], one[time.Time](h, `SELECT date_trunc('hour', now())`)
	if !due.Forced || due.Missed != 3 || !due.Run.At.Equal(hour) || due.Schedule != one[int64](h, `SELECT id FROM schedule`) || due.Cohort != one[int64](h, `SELECT cohort_id FROM schedule`) || due.Tenant != h.acme {
		t.Errorf("got %+v", due)
	}
	h.pause("a", schedules.PauseParams{})
	h.exec(`UPDATE schedule SET paused_at = paused_at - interval '3 hours'`)
	h.resume("a", schedules.ResumeParams{})
	if handed := h.takeHanded(); len(handed) != 0 {
		t.Errorf("it was not asked for, and %v was handed out", handed)
	}
}

func TestResumeOfWhatIsOverCompletes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	at := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	h.put("a", spec(calendar.Spec{At: []string{at.Format(time.RFC3339)}}))
	h.pause("a", schedules.PauseParams{})
	at = at.Add(-2 * time.Hour)
	h.exec(`UPDATE schedule SET paused_at = paused_at - interval '3 hours', spec = $1`, `{"at":["`+at.Format(time.RFC3339)+`"]}`)
	s := h.resume("a", schedules.ResumeParams{FireOnce: true})
	if s.Status != policy.Completed || s.NextAt != nil {
		t.Errorf("got %+v", s)
	}
	if handed := h.takeHanded(); len(handed) != 1 || !handed[0].Run.At.Equal(at) || handed[0].Missed != 0 {
		t.Errorf("got %v", handed)
	}
	_, _, err := h.schedules.Resume(t.Context(), h.acme, "w", "a", schedules.ResumeParams{}, schedules.Changer{})
	faulty(t, err, 409, "not_paused")
	_, _, err = h.schedules.Pause(t.Context(), h.acme, "w", "a", schedules.PauseParams{}, schedules.Changer{})
	faulty(t, err, 409, "not_active")
}

func TestACompletedScheduleIsNotFiredAgain(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	three := cron("0 12 * * *")
	three.MaxTicks = new(3)
	h.put("a", spec(three))
	h.exec(`DELETE FROM member`)
	h.exec(`UPDATE schedule SET status = 'completed', cohort_id = NULL`)
	for _, status := range []string{"", "active", "paused"} {
		s := h.put("a", schedules.Params{Spec: three, Status: status})
		if s.Status != policy.Completed || s.Version != 1 || s.NextAt != nil {
			t.Errorf("put with status %q: got %+v", status, s)
		}
	}
	if s := h.put("a", schedules.Params{Spec: three, Payload: web.Raw(`1`)}); s.Status != policy.Completed || s.Version != 2 {
		t.Errorf("with another payload got %+v", s)
	}
	three.MaxTicks = new(2)
	if s := h.put("a", spec(three)); s.Status != policy.Active || len(s.Upcoming) != 2 {
		t.Errorf("with another spec got %+v", s)
	}
}

func TestAnExhaustedCohortIsNoObstacle(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 12 * * *")))
	h.exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`) // as after its last time
	h.put("b", spec(cron("0 12 * * *")))
	if s := h.put("a", schedules.Params{Spec: cron("0 12 * * *"), Payload: web.Raw(`1`)}); s.Version != 2 {
		t.Errorf("got %+v", s)
	}
	if s := h.put("a", spec(cron("0 13 * * *"))); s.NextAt == nil {
		t.Errorf("got %+v", s)
	}
	h.pause("a", schedules.PauseParams{})
	h.exec(`UPDATE cohort SET next_at = NULL, due_at = NULL, empty_at = now()`) // as the sweep leaves an empty one
	h.resume("a", schedules.ResumeParams{})
	if n := one[int](h, `SELECT count(*) FROM schedule s JOIN cohort c ON c.id = s.cohort_id WHERE key = 'a' AND c.due_at = c.next_at AND c.empty_at IS NULL`); n != 1 {
		t.Error("its cohort sleeps")
	}
}

func TestWhatIsDueIsHandedOutBeforeAChange(t *testing.T) {
	t.Parallel()
	changes := map[string]func(h *home){
		"retimed":    func(h *home) { h.put("a", spec(cron("1 1 1 1 *"))) },
		"paused":     func(h *home) { h.pause("a", schedules.PauseParams{}) },
		"put paused": func(h *home) { h.put("a", schedules.Params{Spec: cron("0 * * * *"), Status: "paused"}) },
		"deleted":    func(h *home) { h.delete("a") },
		"policy": func(h *home) {
			h.put("a", schedules.Params{Spec: cron("0 * * * *"), Policy: &policy.Policy{Missed: "none"}})
		},
		"not changed": func(h *home) { h.put("a", schedules.Params{Spec: cron("0 * * * *"), Payload: web.Raw(`1`)}) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			s := h.put("a", spec(cron("0 * * * *")))
			h.put("b", spec(cron("0 * * * *")))
			id, cohort := one[int64](h, `SELECT id FROM schedule WHERE key = 'a'`), one[int64](h, `SELECT cohort_id FROM schedule WHERE key = 'a'`)
			h.back(3 * time.Hour)
			latest := s.NextAt.Add(-time.Hour)
			if due := h.get("a"); !due.NextAt.Equal(latest) {
				t.Errorf("what is due is at %s, the next is shown at %s", latest, due.NextAt)
			}
			change(h)
			handed := h.takeHanded()
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
	h := newHome(t)
	s := h.put("a", schedules.Params{Spec: cron("0 * * * *"), Policy: &policy.Policy{Missed: "all"}})
	h.back(5 * time.Hour)
	h.exec(`UPDATE member SET from_at = from_at + interval '2 hours'`) // it joined when two had passed
	h.delete("a")
	var got []time.Time
	for _, due := range h.takeHanded() {
		got = append(got, due.Run.At)
	}
	if diff := cmp.Diff([]time.Time{s.NextAt.Add(-3 * time.Hour), s.NextAt.Add(-2 * time.Hour), s.NextAt.Add(-time.Hour)}, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestARunUnderWayIsHandedOutToWhomItHasNotReached(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, key := range []string{"a", "b", "c"} {
		h.put(key, spec(cron("0 * * * *")))
	}
	h.exec(`UPDATE member SET from_at = from_at - interval '3 hours'`)
	h.exec(`UPDATE cohort SET run_at = next_at - interval '1 hour', run_from = next_at - interval '2 hours', run_missed = 1, run_drop = false,
		at_phase = 0, at_id = (SELECT id FROM schedule WHERE key = 'b')`)
	h.pause("b", schedules.PauseParams{})
	if handed := h.takeHanded(); len(handed) != 0 {
		t.Errorf("the run has reached b, and %v was handed out", handed)
	}
	h.pause("c", schedules.PauseParams{})
	handed := h.takeHanded()
	if len(handed) != 1 || handed[0].Missed != 1 || !handed[0].Run.At.Equal(one[time.Time](h, `SELECT run_at FROM cohort`)) {
		t.Errorf("got %v", handed)
	}
}

func TestABrokenScheduleIsAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 12 * * *")))
	h.put("b", spec(cron("0 13 * * *")))
	h.pause("a", schedules.PauseParams{})
	h.exec(`UPDATE schedule SET spec = '{"timezone":"Gone/Zone","cron":["0 12 * * *"]}' WHERE key = 'a'`)
	page, _, err := h.schedules.List(t.Context(), h.acme, schedules.Filter{}, 10, "")
	if err != nil || len(page) != 2 || len(page[0].Warnings) != 1 || page[0].Warnings[0].Code != "not_computable" || page[1].NextAt == nil {
		t.Errorf("got %+v %v", page, err)
	}
	_, _, err = h.schedules.Resume(t.Context(), h.acme, "w", "a", schedules.ResumeParams{}, schedules.Changer{})
	faulty(t, err, 409, "not_active")
	if s := h.put("a", schedules.Params{Spec: cron("0 14 * * *"), Status: "active"}); s.NextAt == nil {
		t.Errorf("mended, got %+v", s)
	}
	h.exec(`UPDATE schedule SET status = 'quarantined', cohort_id = NULL, spec = '{"cron":["x"]}' WHERE key = 'a'`)
	h.exec(`DELETE FROM member m USING schedule s WHERE s.id = m.schedule_id AND s.key = 'a'`)
	_, err = h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 5, time.Time{})
	faulty(t, err, 422, "not_computable")
	if s := h.put("a", spec(cron("0 15 * * *"))); s.Status != policy.Active || s.NextAt == nil {
		t.Errorf("out of quarantine, got %+v", s)
	}
	h.exec(`UPDATE schedule SET spec = '{"cron":["x"]}' WHERE key = 'a'`)
	h.delete("a")
}
