package push_test

import (
	"strings"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
)

// The sweep has the timing of each cohort that it hands out. The messages of its ticks find it there, and ask the database for none.
func TestMessagesOfSweptTicksReadNoTiming(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("w", 1, nil)
	d, r := h.Recording()
	for _, key := range []string{"a", "b"} {
		h.Put("w", key, schedules.Params{Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: "1s"}}, MaxTicks: new(1)}})
	}
	h.Put("w", "c", dispatchtest.Daily(0))
	h.Backdate(h.Tenant)
	h.Start(d)
	dispatchtest.Until(t, "all are delivered", func() bool { return len(dispatchtest.KeysOf(c.Caught())) == 3 })
	again := h.TakenOver(0) // without what the sweep knew
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for sql := range r.Ran {
		if !again && strings.Contains(sql, "c.hash, c.revision, c.tzdata") && strings.Contains(sql, "unnest") {
			t.Errorf("the timings of cohorts were read again:\n%s", sql)
		}
	}
}
