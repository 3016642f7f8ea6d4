package dispatchtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// Aging returns a Carillon whose test can change the quotas of all tenants.
func Aging(t *testing.T) (h *Carillon, quota *atomic.Pointer[tenants.Quotas]) {
	t.Helper()
	h = New(t)
	quota = &atomic.Pointer[tenants.Quotas]{}
	quota.Store(new(tenants.Wide()))
	h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) { return *quota.Load(), nil }
	h.Dispatch = h.Process()
	return h, quota
}

// Retain deletes what is past its retention at a moment. It tries again while a table that loses a partition is in use, or is held for too
// long.
func (h *Carillon) Retain(now time.Time) {
	h.T.Helper()
	Until(h.T, "the retention has met no table in use", func() bool {
		h.Exec(`UPDATE partition_attempt SET next_at = '-infinity'`)
		return h.RetainOnce(now) && h.Number(`SELECT count(*) FROM partition_attempt WHERE next_at > '-infinity'`) == 0
	})
}

// RetainOnce is Retain as one run of upkeep does it: a table in use keeps its partitions, and no run changes them for some minutes. It
// returns false if the run held a table for too long, which keeps its partitions too.
func (h *Carillon) RetainOnce(now time.Time) bool {
	h.T.Helper()
	err := h.Dispatch.Retain(h.T.Context(), now)
	if err != nil && !HeldTooLong(err) {
		h.T.Fatal(err)
	}
	return err == nil
}

// EndTwo makes a tick that has failed and one that has succeeded.
func (h *Carillon) EndTwo() {
	h.T.Helper()
	for i := range 2 {
		h.Trigger()
		one := h.Lease("overlap", 1)[0]
		if i == 0 {
			h.Fail(one)
			continue
		}
		h.Finish(one)
	}
}
