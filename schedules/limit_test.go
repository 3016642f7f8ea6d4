package schedules_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestComingTicksEndWithTheLimit(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	limited := spec(cron("0 12 * * *"))
	limited.Spec.MaxTicks = new(3)
	check := func(when string, from time.Time, want int) {
		t.Helper()
		got := h.get("a")
		up, err := h.schedules.Upcoming(t.Context(), h.acme, "w", "a", 10, from)
		if err != nil {
			t.Fatal(err)
		}
		if len(up.Ticks) != want || !up.Exhausted || got.Status == policy.Active && len(got.Upcoming) != 3 {
			t.Errorf("%s: got %+v and %v, want %d", when, up.Ticks, got.Upcoming, want)
		}
	}
	made := h.put("a", limited)
	if len(made.Upcoming) != 3 {
		t.Errorf("made with %v", made.Upcoming)
	}
	check("active", time.Time{}, 3)
	check("from its first", made.Upcoming[0], 2)
	h.pause("a", schedules.PauseParams{Until: new(made.Upcoming[0])})
	check("paused until the first", time.Time{}, 3)
	h.pause("a", schedules.PauseParams{})
	check("paused", time.Time{}, 3)
	check("paused, from its first", made.Upcoming[0], 2)
	check("paused, long after", made.Upcoming[2], 0)
	h.resume("a", schedules.ResumeParams{})
	check("resumed", time.Time{}, 3)
}
