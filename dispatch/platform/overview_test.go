package platform_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/platform"
)

// What is due and not swept, and what is swept and not opened, is counted over all tenants.
func TestWhatWaitsIsCounted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	e := platform.Engine{DB: h.Config.Pool, Cursors: h.Config.Cursors, Unopened: h.Dispatch.Unopened}
	overview := func() platform.Overview {
		t.Helper()
		v, err := e.Overview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	h.Put("w", "k", dispatchtest.Daily(0))
	own := h.Tenant
	h.Tenant = h.Quota("another", 100)
	h.Put("w", "k", dispatchtest.Daily(1))
	if v := overview(); v.Due != 0 || v.OldestDueAgeMS != 0 || v.Unopened != 0 || len(v.Processes) != 0 || v.Tenants.Active != 2 {
		t.Errorf("got %+v", v)
	}
	h.Backdate(own)
	h.Backdate(h.Tenant)
	if v := overview(); v.Due != 2 || v.OldestDueAgeMS < (17*time.Hour).Milliseconds() || v.Unopened != 0 || v.BrokenPromises != 2 {
		t.Errorf("got %+v", v)
	}
	for shard := range int16(64) {
		h.SweepOnce(shard)
	}
	v := overview()
	if v.Due != 0 || v.OldestDueAgeMS != 0 || v.Unopened != 2 || v.BrokenPromises != 0 {
		t.Errorf("got %+v", v)
	}
	waiting := int64(0)
	for _, n := range v.Queues {
		waiting += n
	}
	if waiting == 0 {
		t.Errorf("no job waits: %v", v.Queues)
	}
}
