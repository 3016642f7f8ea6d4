package finish_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
)

// The list of failing schedules has those whose last ended tick failed, also if several ticks of a schedule end at once. If one of these
// succeeded, the schedule is not failing.
func TestTheListOfFailingSchedulesFollowsEachEnd(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		h.Put("w", key, dispatchtest.Rarely("allow_all"))
	}
	isFailing := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		var ends []lease.Finish
		good, bad := map[string]bool{}, map[string]bool{}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom(keys), 1, 5).Draw(rt, "keys") {
			if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
				t.Fatal(err)
			}
			one := h.Lease("w", 1)[0]
			end := lease.Finish{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: rapid.SampledFrom([]string{"complete", "fail"}).Draw(rt, "outcome")}
			if end.Outcome == "fail" {
				end.Error, end.Retry, bad[key] = "no paper", new(false), true
			} else {
				good[key] = true
			}
			ends = append(ends, end)
		}
		done, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, ends)
		if err != nil || slices.ContainsFunc(done, func(r lease.Verdict) bool { return r != lease.Done }) {
			t.Fatalf("got %v, %v", done, err)
		}
		var want []string
		for _, key := range keys {
			if good[key] || bad[key] {
				isFailing[key] = !good[key]
			}
			if isFailing[key] {
				want = append(want, key)
			}
		}
		page, _, err := h.Schedules.List(t.Context(), h.Tenant, schedules.Filter{Failing: true}, 100, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range page {
			got = append(got, string(s.Key))
		}
		if !slices.Equal(got, want) {
			rt.Errorf("got %q, want %q", strings.Join(got, " "), strings.Join(want, " "))
		}
	})
}
