package lease_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
)

// A worker that names queues gets ticks of these queues only, those of the first priority first.
func TestQueuesAreLeasedApartAndByPriority(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	for i, priority := range []int{4, 1, 3, 2} {
		for _, queue := range []string{"mail", "push"} {
			p := dispatchtest.Rarely("skip")
			p.Delivery = &policy.Delivery{Queue: queue, Priority: &priority}
			key := fmt.Sprint(queue, priority)
			h.Put("w", key, p)
			if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	dispatchtest.Until(t, "all are ready", func() bool { return h.Number(`SELECT coalesce(sum(ticks), 0)::int FROM ready`) == 8 })
	take := func(queues ...string) (keys []string) {
		t.Helper()
		p := lease.LeaseParams{Workflows: []string{"w"}, Queues: queues, Max: new(3), Wait: "1m", Worker: "w"}
		body, err := h.Dispatch.Leases.Lease(postgres.ForTenant(t.Context(), int32(h.Tenant)), h.Tenant, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Ticks []dispatchtest.Handed }
		if err := json.Unmarshal(body, &answer); err != nil {
			t.Fatal(err)
		}
		for _, one := range answer.Ticks {
			keys = append(keys, one.Key)
		}
		slices.Sort(keys) // an answer lists its ticks by nominal time
		return keys
	}
	for _, c := range []struct {
		queues []string
		want   []string
	}{
		{[]string{"mail"}, []string{"mail1", "mail2", "mail3"}},
		{[]string{"push"}, []string{"push1", "push2", "push3"}},
		{[]string{"mail", "push"}, []string{"mail4", "push4"}},
	} {
		if got := take(c.queues...); !slices.Equal(got, c.want) {
			t.Errorf("queues %q: got %q, want %q", c.queues, got, c.want)
		}
	}
}
