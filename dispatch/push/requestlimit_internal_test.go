package push

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/carillonhq/carillon/tenants"
)

// airport runs requests of tenants that end when they are told to.
type airport struct {
	*requestLimiter
	mu      sync.Mutex
	flying  map[tenants.ID]int
	refused int
}

func (a *airport) send(tenant tenants.ID, n, bytes int) {
	for range n {
		go func() {
			ok := a.enter(tenant, bytes)
			a.mu.Lock()
			defer a.mu.Unlock()
			if ok {
				a.flying[tenant]++
			} else {
				a.refused++
			}
		}()
	}
	synctest.Wait()
}

func (a *airport) land(tenant tenants.ID, n, bytes int) {
	for range n {
		a.mu.Lock()
		a.flying[tenant]--
		a.mu.Unlock()
		a.leave(tenant, bytes)
	}
	synctest.Wait()
}

func (a *airport) has(t *testing.T, what string, want map[tenants.ID]int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !maps.Equal(a.flying, want) {
		t.Errorf("%s: in flight by tenant %v, want %v", what, a.flying, want)
	}
}

func TestATenantsRequestsInFlightAreHalfAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &airport{requestLimiter: newRequestLimiter(16, 0), flying: map[tenants.ID]int{}}
		a.send(1, 20, 1)
		a.has(t, "one alone", map[tenants.ID]int{1: 8})
		a.send(2, 20, 1)
		a.has(t, "two: an eighth stays free", map[tenants.ID]int{1: 8, 2: 6})
		a.send(3, 20, 1)
		a.send(4, 20, 1)
		a.has(t, "those that hold none take it", map[tenants.ID]int{1: 8, 2: 6, 3: 1, 4: 1})
		a.land(1, 5, 1)
		a.has(t, "what ends goes to those that hold the fewest", map[tenants.ID]int{1: 3, 2: 6, 3: 3, 4: 2})
		a.close()
		synctest.Wait()
		if a.refused != 80-16-3 {
			t.Errorf("%d were refused at the end, want %d", a.refused, 80-16-3)
		}
		if a.enter(5, 1) {
			t.Error("something is sent after the end")
		}
	})
}

func TestBytesOfRequestsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		a := &airport{requestLimiter: newRequestLimiter(100, 16*mib), flying: map[tenants.ID]int{}}
		a.send(1, 10, 2*mib)
		a.has(t, "half of the bytes", map[tenants.ID]int{1: 4})
		a.send(2, 1, 50*mib) // counts as 8
		a.has(t, "one that is too large", map[tenants.ID]int{1: 4, 2: 1})
		a.send(3, 1, 4*mib)
		a.land(1, 1, 2*mib)
		a.has(t, "a large one waits for room, and nobody passes it", map[tenants.ID]int{1: 3, 2: 1})
		a.land(1, 1, 2*mib)
		a.has(t, "it gets room", map[tenants.ID]int{1: 2, 2: 1, 3: 1})
		a.land(2, 1, 50*mib)
		a.has(t, "the others go on", map[tenants.ID]int{1: 4, 2: 0, 3: 1})
		a.land(3, 1, 4*mib)
		a.land(1, 4, 2*mib)
		a.land(1, 4, 2*mib)
		if a.taken != 0 || a.held != 0 || len(a.tenants) != 0 {
			t.Errorf("%d requests and %d bytes are held by nobody: %v", a.taken, a.held, a.tenants)
		}
	})
}
