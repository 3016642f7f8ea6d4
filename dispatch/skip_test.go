package dispatch_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestTickThatWasAskedToBeLeftOutIsRecordedAsSkipped(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := everySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all", Missed: "all"}
	made := h.put("w", "k", p)
	at := made.Upcoming[len(made.Upcoming)-1]
	if _, _, err := h.schedules.Skip(t.Context(), h.tenant, "w", "k", schedules.SkipParams{At: []time.Time{at}}, schedules.Changer{}); err != nil {
		t.Fatal(err)
	}
	h.start(h.dispatch)
	after := func() bool {
		all := h.history("w", "k")
		return len(all) > 0 && all[len(all)-1].Timestamp.After(at)
	}
	until(t, "a tick after it is recorded", after)
	for _, one := range h.history("w", "k") {
		if skipped := one.State == "skipped" && one.Reason == "requested"; skipped != one.Timestamp.Equal(at) {
			t.Errorf("%s is %s %s", one.Timestamp, one.State, one.Reason)
		}
	}
	s, err := h.schedules.Get(t.Context(), h.tenant, "w", "k")
	if err != nil || s.Stats.Skipped != 1 || s.LastAt == nil || s.LastAt.Equal(at) {
		t.Errorf("got %+v, %v", s, err)
	}
}
