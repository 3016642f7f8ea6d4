package dispatch_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// followingDelay fires at once, and then an hour after each tick has ended, in the zone of its key.
func followingDelay() schedules.Params {
	return schedules.Params{Spec: calendar.Spec{
		Timezone: "@key", MaxTicks: new(2), Intervals: []calendar.Interval{{Every: "1h", Mode: "fixed_delay", First: "now"}},
	}}
}

func TestAProfileThatHandsOutATickOfFixedDelayWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	h.put("w", "k", followingDelay())
	until(t, "its tick is due", func() bool { return h.number(`SELECT count(*) FROM cohort WHERE next_at <= clock_timestamp()`) == 1 })
	at := h.at(`SELECT next_at FROM cohort`)
	h.putKey("k", subjects.KeyParams{Timezone: "Etc/UTC"})
	if n := h.number(`SELECT count(*) FROM schedule_state WHERE delay_at = $1 AND delay_left = 1`, at); n != 1 {
		t.Errorf("the tick of %s was handed out, and the state does not say so", at)
	}
	if n := h.number(`SELECT count(*) FROM cohort WHERE due_at IS NOT NULL`); n != 0 {
		t.Error("another tick is to come before that one has ended")
	}
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, chunk := range h.chunks() {
		if err := h.dispatch.Open(t.Context(), chunk); err != nil {
			t.Fatal(err)
		}
	}
	h.end(h.lease("w", 1)[0], "complete", false)
	h.wantAfter("w", "k", time.Hour)
	if n := h.number(`SELECT ticks_left FROM schedule`); n != 1 {
		t.Errorf("of two ticks, one was handed out and %d are left", n)
	}
}

// The end of a tick that is written while the profile changes is not overlooked.
func TestAProfileWaitsForTheEndOfATickOfFixedDelay(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	h.put("w", "k", followingDelay())
	h.exec(`UPDATE schedule_state SET delay_at = (SELECT next_at FROM cohort), delay_left = 1`)
	h.exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`)
	tx, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `UPDATE schedule_state SET delay_at = NULL`); err != nil { // as the end of the tick does
		t.Fatal(err)
	}
	changed := make(chan error, 1)
	go func() {
		_, _, _, err := h.subjects.PutKey(t.Context(), h.tenant, "k", subjects.KeyParams{Timezone: "Etc/UTC"}, "tester", version.Precondition{})
		changed <- err
	}()
	until(t, "the change has come to the state", func() bool {
		return len(changed) > 0 || h.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if n := h.number(`SELECT count(*) FROM cohort WHERE next_at IS NOT NULL AND due_at IS NOT NULL`); n != 1 {
		t.Error("no tick is to come, though none is out")
	}
}
