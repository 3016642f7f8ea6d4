package push

import (
	"math/rand/v2"
	"time"
)

const (
	breakerFailures = 10 // requests in a row that failed: no connection, no answer in time, or 5xx
	breakerWait     = 5 * time.Second
	breakerLongest  = 5 * time.Minute
)

// breaker is the circuit breaker of an endpoint. While it is open, the endpoint's ticks are held, and cost no attempts. After a while
// it lets one request through; if that fails too, the next wait is twice as long. Each process has its own breakers, and writes their states
// for the health of the endpoint.
type breaker struct {
	failures int
	wait     time.Duration
	until    time.Time // open until then; zero: closed
	probe    time.Time // by when the request that was let through has ended; zero: there is none
}

// The states of a breaker, as the API names them, in the order of how much they block.
const (
	breakerClosed   = "closed"
	breakerHalfOpen = "half_open"
	breakerOpen     = "open"
)

var breakerStates = []string{breakerClosed, breakerHalfOpen, breakerOpen}

// state returns the state of a breaker: half open if its wait is over, and the next request decides.
func (b *breaker) state(now time.Time) string {
	switch {
	case b.until.IsZero():
		return breakerClosed
	case now.Before(b.until):
		return breakerOpen
	}
	return breakerHalfOpen
}

// blocks returns how long a tick is held; 0 if it may be sent. b may be nil.
func (b *breaker) blocks(now time.Time) time.Duration {
	if b == nil || b.until.IsZero() {
		return 0
	}
	if left := b.until.Sub(now); left > 0 {
		return left + rand.N(b.wait/2) // spread over time
	}
	if now.Before(b.probe) {
		return time.Second + rand.N(b.wait)
	}
	return 0
}

// sends records that a request is being sent. b may be nil.
func (b *breaker) sends(now time.Time) {
	if b != nil && !b.until.IsZero() {
		b.probe = now.Add(2 * LongestAnswer)
	}
}

// failed records that a request failed, and reports whether that opened the breaker.
func (b *breaker) failed(now time.Time) (opened bool) {
	b.failures++
	switch {
	case b.until.IsZero() && b.failures >= breakerFailures:
		opened, b.wait = true, breakerWait
	case !b.probe.IsZero():
		b.wait = min(2*b.wait, breakerLongest)
	default:
		return false
	}
	b.probe, b.until = time.Time{}, now.Add(b.wait)
	return opened
}
