package dispatch_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

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
	h := newHouse(t)
	h.config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.Running, q.RunningPerEndpoint = 3, 2
		return q, nil
	}
	var all gauge
	ends := map[string]*gauge{}
	caught := map[string]*catcher{}
	gate := make(chan struct{})
	for _, name := range []string{"one", "two"} {
		c, g := h.catcher(name, 1, nil), &gauge{}
		ends[name], caught[name] = g, c
		c.hang(func(int) {
			all.add(1)
			g.add(1)
			<-gate
			g.add(-1)
			all.add(-1)
		})
	}
	h.start(h.process())
	h.fire("one", 8, 2)
	h.fire("two", 8, 2)
	until(t, "as many are in flight as may be", func() bool { return len(caught["one"].caught())+len(caught["two"].caught()) == 3 })
	close(gate)
	until(t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == 16 })
	if n := all.peak(); n != 3 {
		t.Errorf("%d were in flight at once, want 3", n)
	}
	for name, g := range ends {
		if n := g.peak(); n > 2 || len(caught[name].caught()) != 8 {
			t.Errorf("%s: %d in flight at once, %d pushed, want 2 and 8", name, n, len(caught[name].caught()))
		}
	}
}

func TestTicksOfADeadEndpointAreHeld(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var dead atomic.Bool
	dead.Store(true)
	c := h.catcher("dead", 1, func(_ int, w http.ResponseWriter) {
		if dead.Load() {
			w.WriteHeader(502)
		}
	})
	h.config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.RunningPerEndpoint = 2
		return q, nil
	}
	h.start(h.process())
	h.fire("dead", 30, 2)
	until(t, "ticks are held without an attempt", func() bool {
		return h.number(`SELECT count(*) FROM held WHERE why = 'endpoint' AND attempt = 1`) > 5
	})
	if n := len(c.caught()); n > 15 {
		t.Errorf("%d requests were made", n)
	}
	dead.Store(false)
	until(t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == 30 })
}
