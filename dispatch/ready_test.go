package dispatch_test

import (
	"sync"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/schedules"
)

// readyHerd has n schedules of a workflow, "herd 1" to "herd n-1" and "first", come due at once and wait for workers.
func (h *house) readyHerd(workflow string, n int) {
	h.t.Helper()
	h.sweptHerd(workflow, n)
	for _, id := range h.chunks() {
		if err := h.dispatch.Open(h.t.Context(), id); err != nil {
			h.t.Fatal(err)
		}
	}
	if waiting := h.number(`SELECT sum(ticks) FROM ready`); waiting != n {
		h.t.Fatalf("%d ticks wait, want %d", waiting, n)
	}
}

// sweptHerd has n schedules of a workflow come due at once, and swept.
func (h *house) sweptHerd(workflow string, n int) {
	h.t.Helper()
	if err := h.dispatch.Register(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.put(workflow, "first", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}})
	h.herd(workflow, "first", n-1)
	h.exec(`UPDATE member SET from_at = from_at - interval '1 minute'`)
	h.exec(`UPDATE cohort SET next_at = date_trunc('second', clock_timestamp()), due_at = clock_timestamp()`)
	if _, err := h.dispatch.SweepOnce(h.t.Context(), int16(h.number(`SELECT shard FROM cohort`))); err != nil {
		h.t.Fatal(err)
	}
}

func TestWorkersThatTakeFromOneRowLeaseEachTickOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 130
	h.readyHerd("herd", size)
	if rows := h.number(`SELECT count(*) FROM ready`); rows != 2 {
		t.Errorf("they lie in %d rows", rows)
	}
	var mu sync.Mutex
	leased := map[string]int{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(leased)
	}
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for count() < size && !t.Failed() {
				body, err := h.dispatch.Leases.Lease(t.Context(), h.tenant, lease.LeaseParams{Workflows: []string{"herd", "herd"}, Max: new(7)}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, one := range ticksOf(t, body) {
					leased[one.Key]++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	for key, n := range leased {
		if n != 1 {
			t.Errorf("%s was leased %d times", key, n)
		}
	}
	if left := h.number(`SELECT count(*) FROM ready`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

func TestTickIsCancelledAmongOthersThatAreReady(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 120
	h.readyHerd("herd", size)
	leased := map[string]bool{}
	for _, one := range h.lease("herd", 10) {
		leased[one.Key] = true
	}
	cancelled := 0
	for _, key := range []string{"first", "herd 5", "herd 50", "herd 119"} {
		one := h.history("herd", key)[0]
		got, err := h.dispatch.Control.Cancel(t.Context(), h.tenant, one.TickID)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "running", false: "cancelled"}[leased[key]]; got.State != want || got.Reason != "requested" {
			t.Errorf("%s, which is leased %v, is %s %s", key, leased[key], got.State, got.Reason)
		}
		if !leased[key] {
			leased[key] = true
			cancelled++
		}
	}
	for _, one := range h.lease("herd", size) {
		if leased[one.Key] {
			t.Errorf("%s was leased again, or after it was cancelled", one.Key)
		}
		leased[one.Key] = true
	}
	if len(leased) != size || cancelled == 0 {
		t.Errorf("%d were leased or cancelled, want %d", len(leased), size)
	}
	if left := h.number(`SELECT count(*) FROM ready`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}
