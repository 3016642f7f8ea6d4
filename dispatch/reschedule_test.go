package dispatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func TestMovedTickIsHandedOutAtItsNewTimeInTheSequence(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.config.Settle = h.schedules.Settle
	d := h.process()
	made := h.put("w", "k", schedules.Params{
		Spec:   calendar.Spec{Intervals: []calendar.Interval{{Every: "3s"}}},
		Policy: &policy.Policy{Overlap: "allow_all", Missed: "all"},
	})
	at := made.Upcoming[2]
	to := at.Add(-time.Second)
	if _, _, err := h.schedules.Reschedule(t.Context(), h.tenant, "w", "k", schedules.RescheduleParams{At: at, To: to}, schedules.Changer{}); err != nil {
		t.Fatal(err)
	}
	h.start(d)
	var got []handed
	for len(got) < 4 {
		got = append(got, h.lease("w", 10)...)
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
	if _, err := h.pool.Exec(t.Context(), `UPDATE schedule SET moved_until = moved_until - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	until(t, "its moves are settled", func() bool {
		var left int
		if err := h.pool.QueryRow(t.Context(), `SELECT count(*) FROM schedule WHERE moved_until IS NOT NULL`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
	n := len(h.history("w", "k"))
	until(t, "it goes on", func() bool { return len(h.history("w", "k")) > n+1 })
	all := h.history("w", "k")
	for i, one := range all[3:] {
		if !one.Timestamp.Equal(made.Upcoming[3].Add(time.Duration(i) * 3 * time.Second)) {
			t.Errorf("%s is not in the sequence", one.Timestamp)
		}
	}
}
