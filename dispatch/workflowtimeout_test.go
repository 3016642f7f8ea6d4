package dispatch_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// The timeout that a workflow gives its schedules bounds leases and heartbeats too.
func TestALeaseEndsWithTheTimeoutOfItsWorkflow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	timeout := &policy.Defaults{Delivery: &policy.Delivery{Timeout: "20s"}}
	if _, _, err := h.schedules.PutWorkflow(t.Context(), h.tenant, "bounded", schedules.WorkflowParams{Defaults: timeout}); err != nil {
		t.Fatal(err)
	}
	h.start(h.dispatch)
	h.put("bounded", "k", schedules.Params{Spec: at(5)})
	one := h.lease("bounded", 1)[0]
	if seconds := h.number(`SELECT extract(epoch FROM until_at - leased_at)::int FROM lease`); seconds != 20 {
		t.Errorf("the lease lasts %d s, want 20", seconds)
	}
	beaten, err := h.dispatch.Leases.Beat(t.Context(), h.tenant, []lease.Beat{{TickID: one.TickID, LeaseToken: one.LeaseToken, Lease: "10m"}})
	if err != nil || beaten[0].LeaseUntil == nil {
		t.Fatalf("got %+v, %v", beaten, err)
	}
	var began time.Time
	if err := h.pool.QueryRow(t.Context(), `SELECT leased_at FROM lease`).Scan(&began); err != nil {
		t.Fatal(err)
	}
	if length := beaten[0].LeaseUntil.Sub(began); length != 20*time.Second {
		t.Errorf("a heartbeat lengthens the lease to %s, want 20 s", length)
	}
}
