package upkeep_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestMovedTickIsHandedOutAtItsNewTimeInTheSequence(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Settle = h.Schedules.Settle
	d := h.Process()
	made := h.Put("w", "k", schedules.Params{
		Spec:   calendar.Spec{Intervals: []calendar.Interval{{Every: "6s"}}},
		Policy: &policy.Policy{Overlap: "allow_all", Missed: "all"},
	})
	at := made.Upcoming[2]
	to := at.Add(-time.Second)
	if _, _, err := h.Schedules.Reschedule(t.Context(), h.Tenant, "w", "k", schedules.RescheduleParams{At: at, To: to}, schedules.Changer{}); err != nil {
		t.Fatal(err)
	}
	h.Start(d)
	var got []dispatchtest.Handed
	for len(got) < 4 {
		got = append(got, h.Lease("w", 10)...)
	}
	want := slices.Clone(made.Upcoming)
	want[2] = to
	for i, one := range got[:4] {
		if !one.Timestamp.Equal(want[i]) || *one.Occurrence != int64(i+1) || one.FiredAt.Before(want[i]) {
			t.Errorf("tick %d is %+v, want %s", i, one, want[i])
		}
		if i > 0 && !one.LastTimestamp.Equal(want[i-1]) {
			t.Errorf("tick %d: last_timestamp is %s", i, one.LastTimestamp)
		}
		if i < 4 && !one.Upcoming[0].Equal(want[i+1]) {
			t.Errorf("tick %d announces %v, want %v", i, one.Upcoming, want[i+1:])
		}
	}
	if _, err := h.Pool.Exec(t.Context(), `UPDATE schedule SET moved_until = moved_until - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "its moves are settled", func() bool {
		var left int
		if err := h.Pool.QueryRow(t.Context(), `SELECT count(*) FROM schedule WHERE moved_until IS NOT NULL`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
	n := len(h.History("w", "k"))
	dispatchtest.Until(t, "it goes on", func() bool { return len(h.History("w", "k")) > n+1 })
	all := h.History("w", "k")
	for i, one := range all[3:] {
		if !one.Timestamp.Equal(made.Upcoming[3].Add(time.Duration(i) * 6 * time.Second)) {
			t.Errorf("%s is not in the sequence", one.Timestamp)
		}
	}
}
