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

// breaker keeps ticks from an endpoint that answers nothing: they are held, and no attempt is spent on them. After a while
// one request is let through; where it fails too, the wait is twice as long. Each process has breakers of its own.
type breaker struct {
	failures int
	wait     time.Duration
	until    time.Time // zero: closed
	probe    time.Time // when the one request that is let through has ended at the latest; zero: there is none
}

// blocks tells how long a tick is to be held; 0: it may be sent.
func (b *breaker) blocks(now time.Time) time.Duration {
	if b == nil || b.until.IsZero() {
		return 0
	}
	if left := b.until.Sub(now); left > 0 {
		return left + rand.N(b.wait/2) // so that not all come at once
	}
	if now.Before(b.probe) {
		return time.Second + rand.N(b.wait)
	}
	return 0
}

// sends notes that a request is being sent.
func (b *breaker) sends(now time.Time) {
	if b != nil && !b.until.IsZero() {
		b.probe = now.Add(2 * LongestAnswer)
	}
}

// failed notes that a request came to nothing, and tells whether the breaker opened by that.
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
