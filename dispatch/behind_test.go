package dispatch_test

import "testing"

// crowd has a herd pushed to an endpoint that hangs, whose queue holds few of it.
func (h *house) crowd(workflow string, size, room int) *catcher {
	h.t.Helper()
	c := h.catcher(workflow, 1, nil)
	h.sweptHerd(workflow, size)
	h.dispatch.Room(room)
	return c
}

func TestTicksBehindAFullQueueCostNoWrites(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 120
	c := h.crowd("w", size, 10)
	release := make(chan struct{})
	c.hang(func(int) { <-release })
	h.start(h.dispatch)
	until(t, "all are open", func() bool {
		return h.number(`SELECT count(*) FROM tick WHERE state = 1`) == size && len(c.caught()) > 0
	})
	got, err := h.dispatch.Control.Cancel(t.Context(), h.tenant, h.history("w", "herd 119")[0].TickID) // the last one
	if err != nil || got.State != "running" || got.Reason != "requested" {
		t.Errorf("one that waits behind others: got %+v, %v", got, err)
	}
	if held := h.number(`SELECT count(*) FROM held`); held != 0 {
		t.Errorf("%d are held", held)
	}
	if open := h.number(`SELECT count(*) FROM chunk WHERE opened_at IS NOT NULL AND done_at IS NULL`); open == 0 {
		t.Error("no chunk is open")
	}
	close(release)
	until(t, "all have ended", func() bool { return h.number(`SELECT count(*) FROM tick WHERE ended_at IS NOT NULL`) == size })
	if good := h.number(`SELECT count(*) FROM tick WHERE state = 2`); good != size-1 {
		t.Errorf("%d have succeeded, want %d", good, size-1)
	}
	if sent := c.caught(); len(sent) != size-1 || len(keysOf(sent)) != size-1 {
		t.Errorf("%d were sent, of %d keys", len(sent), len(keysOf(sent)))
	}
	until(t, "the chunks are done", func() bool { return h.number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
	h.idle()
}

func TestTicksBehindAQueueOutliveAProcess(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 60
	c := h.crowd("w", size, 6)
	release := make(chan struct{})
	c.hang(func(int) { <-release })
	if err := h.dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "all are open", func() bool {
		return h.number(`SELECT count(*) FROM tick WHERE state = 1`) == size && len(c.caught()) > 0
	})
	h.dispatch.Kill()
	close(release)
	before := len(c.caught())
	other := h.process()
	other.Room(6)
	h.start(other)
	until(t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	if sent := c.caught(); len(keysOf(sent)) != size || len(sent) > size+before {
		t.Errorf("%d were sent, %d of them before the process died, of %d keys", len(sent), before, len(keysOf(sent)))
	}
	until(t, "the chunks are done", func() bool { return h.number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
}

func TestTicksBehindAQueueAreHeldOnceTheEndpointIs(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 80
	c := h.crowd("w", size, 6)
	release := make(chan struct{})
	c.hang(func(int) { <-release })
	h.start(h.dispatch)
	until(t, "all are open", func() bool {
		return h.number(`SELECT count(*) FROM tick WHERE state = 1`) == size && len(c.caught()) > 0
	})
	h.exec(`UPDATE endpoint SET state = 'held'`)
	close(release)
	until(t, "the others are held", func() bool {
		return h.number(`SELECT count(*) FROM held WHERE why = 'endpoint'`)+h.number(`SELECT count(*) FROM tick WHERE state = 2`) == size
	})
	if held := h.number(`SELECT count(*) FROM held`); held == 0 {
		t.Error("none is held")
	}
	h.exec(`UPDATE endpoint SET state = 'enabled'`)
	until(t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	if sent := c.caught(); len(sent) != size {
		t.Errorf("%d were sent", len(sent))
	}
}

func TestChunkWithoutAJobIsOpenedAndOneWithAJobWaits(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sweptHerd("w", 3)
	h.exec(`UPDATE chunk SET swept_at = swept_at - interval '1 minute'`)
	opened := func() int {
		if err := h.dispatch.OpenStale(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h.number(`SELECT count(*) FROM chunk WHERE opened_at IS NOT NULL`)
	}
	if n := opened(); n != 0 {
		t.Errorf("%d were opened beside their jobs", n)
	}
	h.exec(`UPDATE river_job SET state = 'running', attempted_at = now()`) // by a process that is gone
	if n := opened(); n != 1 {
		t.Errorf("%d were opened, want the one", n)
	}
}
