package lease_test

import (
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
)

func TestWorkersThatTakeFromOneRowLeaseEachTickOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 130
	h.ReadyHerd("herd", size)
	if rows := h.Number(`SELECT count(*) FROM ready`); rows != 2 {
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
				body, err := h.Dispatch.Leases.Lease(t.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{"herd", "herd"}, Max: new(7)}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, one := range dispatchtest.TicksOf(t, body) {
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
	if left := h.Number(`SELECT count(*) FROM ready`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

func TestTickIsCancelledAmongOthersThatAreReady(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 120
	h.ReadyHerd("herd", size)
	leased := map[string]bool{}
	for _, one := range h.Lease("herd", 10) {
		leased[one.Key] = true
	}
	cancelled := 0
	for _, key := range []string{"first", "herd 5", "herd 50", "herd 119"} {
		one := h.History("herd", key)[0]
		got, err := h.Dispatch.Control.Cancel(t.Context(), h.Tenant, one.TickID)
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
	for _, one := range h.Lease("herd", size) {
		if leased[one.Key] {
			t.Errorf("%s was leased again, or after it was cancelled", one.Key)
		}
		leased[one.Key] = true
	}
	if len(leased) != size || cancelled == 0 {
		t.Errorf("%d were leased or cancelled, want %d", len(leased), size)
	}
	if left := h.Number(`SELECT count(*) FROM ready`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}
