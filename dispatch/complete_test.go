package dispatch_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// A change that gives a schedule more ticks waits for the schedule's row while Complete finds the schedule at its end.
// The change commits first. It was acknowledged, so the schedule stays active and its next change succeeds.
func TestAScheduleThatGetsMoreTicksIsNotCompleted(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	limited := func(ticks int) schedules.Params {
		p := rarely("skip")
		p.Spec.MaxTicks = &ticks
		return p
	}
	h.put("w", "k", limited(1))
	h.exec(`UPDATE member SET until_at = now() - interval '1 minute'`)
	waiting := func() int {
		return h.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	holder, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `SELECT FROM schedule FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	put, complete := make(chan error, 1), make(chan error, 1)
	go func() {
		_, _, err := h.schedules.Put(postgres.ForTenant(t.Context(), int32(h.tenant)), policy.Name{Tenant: h.tenant, Workflow: "w", Key: "k"}, limited(5), "tester", version.Precondition{})
		put <- err
	}()
	until(t, "the change waits for the schedule's row", func() bool { return waiting() == 1 })
	go func() { complete <- h.dispatch.Complete(t.Context()) }()
	until(t, "Complete waits for the change or has ended", func() bool { return waiting() == 2 || len(complete) == 1 })
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, done := range []chan error{put, complete} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.schedules.Get(t.Context(), h.tenant, "w", "k")
	if err != nil || s.Status != schedules.Active || s.NextAt == nil {
		t.Errorf("got %s, next %v, %v", s.Status, s.NextAt, err)
	}
	if n := h.number(`SELECT count(*) FROM schedule s JOIN member m ON m.cohort_id = s.cohort_id AND m.schedule_id = s.id WHERE m.until_at > $1`, time.Now()); n != 1 {
		t.Errorf("it is %d times a member of its cohort", n)
	}
	h.put("w", "k", limited(7))
}
