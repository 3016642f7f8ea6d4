package push_test

import (
	"context"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/tenants"
)

// crowd sweeps size schedules that push to one endpoint, whose queue has room for only a part of them.
func crowd(h *dispatchtest.Carillon, workflow string, size, room int) *dispatchtest.Catcher {
	h.T.Helper()
	c := h.Catcher(workflow, 1, nil)
	h.SweptHerd(workflow, size)
	h.Dispatch.Room(room)
	return c
}

func TestTicksBehindAFullQueueCostNoWrites(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 120
	c := crowd(h, "w", size, 10)
	release := make(chan struct{})
	c.Hang(func(int) { <-release })
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "all are open", func() bool {
		return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == size && len(c.Caught()) > 0
	})
	got, err := h.Dispatch.Control.Cancel(t.Context(), h.Tenant, h.History("w", "herd 119")[0].TickID) // the last one
	if err != nil || got.State != "running" || got.Reason != "requested" {
		t.Errorf("one that waits behind others: got %+v, %v", got, err)
	}
	if held := h.Number(`SELECT count(*) FROM delayed`); held != 0 {
		t.Errorf("%d are held", held)
	}
	if open := h.Number(`SELECT count(*) FROM chunk WHERE opened_at IS NOT NULL AND done_at IS NULL`); open == 0 {
		t.Error("no chunk is open")
	}
	close(release)
	dispatchtest.Until(t, "all have ended", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE ended_at IS NOT NULL`) == size })
	if good := h.Number(`SELECT count(*) FROM tick WHERE state = 2`); good != size-1 {
		t.Errorf("%d have succeeded, want %d", good, size-1)
	}
	if sent := c.Caught(); len(sent) != size-1 && !h.TakenOver(0) || len(dispatchtest.KeysOf(sent)) != size-1 {
		t.Errorf("%d were sent, of %d keys", len(sent), len(dispatchtest.KeysOf(sent)))
	}
	dispatchtest.Until(t, "the chunks are done", func() bool { return h.Number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
	h.Idle()
}

func TestTicksBehindAQueueOutliveAProcess(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size, inFlight = 60, 4
	h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.RunningPerEndpoint = inFlight
		return q, nil
	}
	h.Dispatch = h.Process()
	c := crowd(h, "w", size, 6)
	release := make(chan struct{})
	c.Hang(func(int) { <-release })
	if err := h.Dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "all are open, and as many are in flight as may be", func() bool {
		return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == size && len(c.Caught()) >= inFlight
	})
	h.Dispatch.Kill()
	close(release)
	before := len(c.Caught())
	other := h.Process()
	other.Room(6)
	h.Start(other)
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	if sent := c.Caught(); len(dispatchtest.KeysOf(sent)) != size || len(sent) > size+before && !h.TakenOver(1) {
		t.Errorf("%d were sent, %d of them before the process died, of %d keys", len(sent), before, len(dispatchtest.KeysOf(sent)))
	}
	dispatchtest.Until(t, "the chunks are done", func() bool { return h.Number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
}

func TestTicksBehindAQueueAreHeldOnceTheEndpointIs(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 80
	c := crowd(h, "w", size, 6)
	release := make(chan struct{})
	c.Hang(func(int) { <-release })
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "all are open", func() bool {
		return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == size && len(c.Caught()) > 0
	})
	h.Exec(`UPDATE endpoint SET state = 'held'`)
	close(release)
	dispatchtest.Until(t, "the others are held", func() bool {
		return h.Number(`SELECT count(*) FROM delayed WHERE why = 'endpoint'`)+h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == size
	})
	if held := h.Number(`SELECT count(*) FROM delayed`); held == 0 {
		t.Error("none is held")
	}
	h.Exec(`UPDATE endpoint SET state = 'enabled'`)
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	if sent := c.Caught(); len(sent) != size && !h.TakenOver(0) || len(dispatchtest.KeysOf(sent)) != size {
		t.Errorf("%d were sent, of %d keys", len(sent), len(dispatchtest.KeysOf(sent)))
	}
}

func TestChunkWithoutAJobIsOpenedAndOneWithAJobWaits(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.SweptHerd("w", 3)
	h.Exec(`UPDATE chunk SET swept_at = swept_at - interval '1 minute'`)
	opened := func() int {
		if err := h.Dispatch.OpenStale(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h.Number(`SELECT count(*) FROM chunk WHERE opened_at IS NOT NULL`)
	}
	if n := opened(); n != 0 {
		t.Errorf("%d were opened beside their jobs", n)
	}
	h.Exec(`UPDATE river_job SET state = 'running', attempted_at = now()`) // by a process that is gone
	if n := opened(); n != 1 {
		t.Errorf("%d were opened, want the one", n)
	}
}
