package finish_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// With jitter, a run goes over its members in two legs. A tick that ends between them sets the next time all the same.
func TestFixedDelayWithJitterGoesOnAfterASkippedTick(t *testing.T) {
	t.Parallel()
	c := postgrestest.StoppedClock(t, time.Date(2090, 3, 1, 0, 0, 0, 5e8, time.UTC))
	h := dispatchtest.NewOn(t, c.Pool)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := dispatchtest.Delay("50m")
	p.Spec.Jitter, p.Policy = "30s", &policy.Policy{MaxLateness: "30m"}
	for i := range 20 { // keys in both legs
		h.Put("delayed", fmt.Sprint(i), p)
	}
	c.Move(t, 88*time.Minute)
	for range 4 {
		for shard := range int16(cohorts.Shards) {
			if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range h.Chunks() {
			if err := h.Dispatch.Open(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 20 {
		history := h.History("delayed", fmt.Sprint(i))
		if len(history) != 1 || history[0].Reason != "expired" {
			t.Fatalf("got %+v", history)
		}
		wantAfter(h, "delayed", fmt.Sprint(i), 50*time.Minute)
	}
}
