package push_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/tenants"
)

// gauge keeps the greatest number of what goes on at once.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.most = max(g.most, g.now)
}

func (g *gauge) peak() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

func TestPushesInFlightStayWithinTheQuotas(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.Running, q.RunningPerEndpoint = 3, 2
		return q, nil
	}
	var all gauge
	ends := map[string]*gauge{}
	caught := map[string]*dispatchtest.Catcher{}
	gate := make(chan struct{})
	for _, name := range []string{"one", "two"} {
		c, g := h.Catcher(name, 1, nil), &gauge{}
		ends[name], caught[name] = g, c
		c.Hang(func(int) {
			all.add(1)
			g.add(1)
			<-gate
			g.add(-1)
			all.add(-1)
		})
	}
	h.Start(h.Process())
	h.Fire("one", 8, 2)
	h.Fire("two", 8, 2)
	dispatchtest.Until(t, "as many are in flight as may be", func() bool { return len(caught["one"].Caught())+len(caught["two"].Caught()) >= 3 })
	close(gate)
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 16 })
	if n := all.peak(); n < 3 || n > 3 && !h.TakenOver(0) {
		t.Errorf("%d were in flight at once, want 3", n)
	}
	for name, g := range ends {
		sent := caught[name].Caught()
		if n := g.peak(); (n > 2 || len(sent) != 8) && !h.TakenOver(0) || len(dispatchtest.KeysOf(sent)) != 8 {
			t.Errorf("%s: %d in flight at once, %d pushed of %d keys, want 2 and 8", name, n, len(sent), len(dispatchtest.KeysOf(sent)))
		}
	}
}

func TestTicksOfADeadEndpointAreHeld(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	var dead atomic.Bool
	dead.Store(true)
	c := h.Catcher("dead", 1, func(_ int, w http.ResponseWriter) {
		if dead.Load() {
			w.WriteHeader(502)
		}
	})
	h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.RunningPerEndpoint = 2
		return q, nil
	}
	h.Start(h.Process())
	h.Fire("dead", 30, 2)
	dispatchtest.Until(t, "ticks are held without an attempt", func() bool {
		return h.Number(`SELECT count(*) FROM delayed WHERE why = 'endpoint' AND attempt = 1`) > 5
	})
	if n := len(c.Caught()); n > 15 {
		t.Errorf("%d requests were made", n)
	}
	dead.Store(false)
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 30 })
}

func TestPushesInFlightStayWithinTheProcess(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	p := h.Process()
	p.PushAtOnce(6) // half of it a tenant's
	var all gauge
	gate := make(chan struct{})
	caught := map[string]*dispatchtest.Catcher{}
	for _, name := range []string{"one", "two"} {
		caught[name] = h.Catcher(name, 1, nil)
		caught[name].Hang(func(int) {
			all.add(1)
			<-gate
			all.add(-1)
		})
	}
	h.Start(p)
	h.Fire("one", 8, 2)
	h.Fire("two", 8, 2)
	dispatchtest.Until(t, "as many are in flight as may be", func() bool { return len(caught["one"].Caught())+len(caught["two"].Caught()) >= 3 })
	close(gate)
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 16 })
	if n := all.peak(); n < 3 || n > 3 && !h.TakenOver(0) {
		t.Errorf("%d were in flight at once, want 3", n)
	}
}

// Large payloads fill a queue long before its number of ticks does: the rest waits as keys, and is read when there is room.
func TestPayloadsOfAQueueAreBounded(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size, payload = 150, 60_000
	c := h.Catcher("w", 1, nil)
	h.SweptHerd("w", size)
	h.Exec(`UPDATE schedule SET payload = '"` + strings.Repeat("x", payload) + `"'`)
	var most atomic.Int64
	gate := make(chan struct{})
	c.Hang(func(int) {
		<-gate
		held, _ := h.Dispatch.QueuedBytes()
		for was := most.Load(); int64(held) > was && !most.CompareAndSwap(was, int64(held)); was = most.Load() {
		}
	})
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "all are open", func() bool {
		return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == size && len(c.Caught()) > 0
	})
	held, room := h.Dispatch.QueuedBytes()
	if held == 0 || held > room {
		t.Errorf("%d bytes of payloads wait, want 1 to %d", held, room)
	}
	close(gate)
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	if lot := int64(1 << 20); most.Load() > int64(room)+lot {
		t.Errorf("%d bytes of payloads waited at once", most.Load())
	}
	if held, _ := h.Dispatch.QueuedBytes(); held != 0 {
		t.Errorf("%d bytes are counted of nothing", held)
	}
}
