package carillon

import (
	"context"
	"sync"
	"time"
)

// room counts how many more ticks a worker may lease: one for each handler, and in addition as many as the handlers complete in a tenth of a
// second. So fast handlers get their ticks in large requests, and slow ones hold no ticks that another worker could run.
type room struct {
	mu      sync.Mutex
	slots   int
	used    int
	typical time.Duration // moving average of the handlers' times
	freed   chan struct{}
}

func newRoom(slots int) *room {
	// Before the first tick the worker assumes slow handlers.
	return &room{slots: slots, typical: time.Minute, freed: make(chan struct{}, 1)}
}

// take waits for a place, and reserves up to most. It returns 0 if ctx ends first.
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

// ran notes the time of a handler.
func (r *room) ran(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typical += (took - r.typical) / 8
}
