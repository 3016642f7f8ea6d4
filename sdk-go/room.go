package carillon

import (
	"context"
	"sync"
	"time"
)

// room says how many more ticks a worker may lease: as many as it has handlers, and ahead of them what the handlers get
// through in a tenth of a second. So quick handlers are fed in large requests, and slow ones hoard nothing that another
// worker could run.
type room struct {
	mu      sync.Mutex
	slots   int
	used    int
	typical time.Duration // how long a handler takes: an average that forgets
	freed   chan struct{}
}

func newRoom(slots int) room {
	// A worker that has run nothing yet takes its handlers for slow.
	return room{slots: slots, typical: time.Minute, freed: make(chan struct{}, 1)}
}

// take reserves up to most places, waiting for the first; none if ctx ends before.
func (r *room) take(ctx context.Context, most int) int {
	for {
		r.mu.Lock()
		n := min(most, r.slots+r.ahead()-r.used)
		if n > 0 {
			r.used += n
			r.mu.Unlock()
			return n
		}
		r.mu.Unlock()
		select {
		case <-r.freed:
		case <-ctx.Done():
			return 0
		}
	}
}

func (r *room) ahead() int {
	return int(min(int64(leaseMost), int64(r.slots)*int64(aheadOf)/max(1, int64(r.typical))))
}

// give returns n places.
func (r *room) give(n int) {
	r.mu.Lock()
	r.used -= n
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// ran notes how long a handler took.
func (r *room) ran(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typical += (took - r.typical) / 8
}
