package chunk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// twice fires at two seconds of a minute that is not near, each day; each time of a day counts.
func twice(at time.Time, first, second int) schedules.Params {
	p := schedules.Params{Policy: &policy.Policy{Missed: "all", Overlap: "allow_all", MaxLateness: "1w"}}
	p.Spec = calendar.Spec{Cron: calendar.StringList{fmt.Sprintf("%d,%d %d %d * * *", first, second, at.Minute(), at.Hour())}}
	return p
}

func TestChunksMixNominalTimesOfATenant(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := time.Now().UTC().Add(6 * time.Hour)
	const each = 3
	for i := range each {
		h.Put("even", fmt.Sprint(i), twice(at, 10, 30))
		h.Put("odd", fmt.Sprint(i), twice(at, 20, 40))
	}
	h.Backdate(h.Tenant)
	shard := int16(h.Number(`SELECT DISTINCT shard FROM cohort`))
	for range 2 {
		if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	ids := h.Chunks()
	if len(ids) != 2 || h.Number(`SELECT min(ticks) FROM chunk`) != 2*each {
		t.Fatalf("two sweeps of two cohorts make %d chunks", len(ids))
	}
	if err := h.Dispatch.Open(t.Context(), ids[1]); err != nil {
		t.Fatal(err)
	}
	if left := h.Chunks(); len(left) > 0 {
		t.Errorf("chunks %v are unopened", left)
	}
	for workflow, seconds := range map[string][2]int{"even": {10, 30}, "odd": {20, 40}} {
		for i := range each {
			ticks := h.History(workflow, fmt.Sprint(i))
			if len(ticks) != 2 || ticks[0].Timestamp.Second() != seconds[0] || ticks[1].Timestamp.Second() != seconds[1] {
				t.Errorf("%s: got %+v", workflow, ticks)
				continue
			}
			if last := ticks[1].LastTimestamp; last == nil || !last.Equal(ticks[0].Timestamp) {
				t.Errorf("%s: the second tick came after %v", workflow, last)
			}
		}
	}
}
