package finish_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// The row of a schedule whose timed pause has ended may still say that it is paused. Its failures count like those of any active schedule.
func TestFailuresPauseAScheduleWhoseTimedPauseHasEnded(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Pause = h.Schedules.PauseFailing
	h.Dispatch = h.Process()
	h.Start(h.Dispatch)
	p := dispatchtest.Rarely("skip")
	p.Policy.PauseAfterFailures = new(1)
	h.Put("w", "k", p)
	if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	leased := h.Lease("w", 1)
	until := time.Now().Add(time.Hour)
	if _, _, err := h.Schedules.Pause(t.Context(), h.Tenant, "w", "k", schedules.PauseParams{Until: &until}, schedules.Changer{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.Exec(`UPDATE schedule SET paused_until = date_trunc('second', clock_timestamp())`) // the hour is over
	if h.Number(`SELECT count(*) FROM schedule WHERE status = 'paused' AND paused_until <= clock_timestamp()`) != 1 {
		t.Fatal("the row does not say that it is paused")
	}
	h.Fail(leased[0])
	var got schedules.Schedule
	dispatchtest.Until(t, "the failure pauses it for good", func() bool {
		var err error
		if got, err = h.Schedules.Get(t.Context(), h.Tenant, "w", "k"); err != nil {
			t.Fatal(err)
		}
		return got.Status == policy.Paused
	})
	if got.PausedUntil != nil || got.StatusNote == nil || *got.StatusNote != "paused after 1 failed ticks in a row" {
		t.Errorf("got %+v", got)
	}
}
