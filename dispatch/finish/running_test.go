package finish_test

import (
	"sync"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// running are the ticks that an endpoint has and has not ended. It ends a tick once the test releases it, however often it is sent.
type running struct {
	caught func() []dispatchtest.Handed

	mu    sync.Mutex
	gates map[string]chan struct{} // of each tick: closed once it is released
	all   bool                     // are released, also later ones
	now   map[string]bool
	most  int // ticks at once
}

// gate returns the gate of a tick. The caller has locked mu.
func (r *running) gate(tick string) chan struct{} {
	g := r.gates[tick]
	if g == nil {
		g = make(chan struct{})
		r.gates[tick] = g
		if r.all {
			close(g)
		}
	}
	return g
}

// hang makes the request with the n-th tick that the endpoint caught wait until that tick is released.
func (r *running) hang(n int) {
	tick := r.caught()[n-1].TickID
	r.mu.Lock()
	gate := r.gate(tick)
	r.now[tick] = true
	r.most = max(r.most, len(r.now))
	r.mu.Unlock()
	<-gate
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.now, tick)
}

// release lets a tick end.
func (r *running) release(tick string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.gate(tick))
}

// releaseAll lets all ticks end, also those that are sent later.
func (r *running) releaseAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = true
	for _, g := range r.gates {
		select {
		case <-g: // released before
		default:
			close(g)
		}
	}
}

// atOnce returns how many ticks were running at a time at most.
func (r *running) atOnce() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

// firstOfEach returns those of the ticks that an endpoint caught which came for the first time.
func firstOfEach(caught []dispatchtest.Handed) (first []dispatchtest.Handed) {
	seen := map[string]bool{}
	for _, one := range caught {
		if !seen[one.TickID] {
			seen[one.TickID] = true
			first = append(first, one)
		}
	}
	return first
}
