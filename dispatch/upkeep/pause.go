package upkeep

import (
	"context"
	"time"
)

const (
	pauseFor   = 100                    // how long a task pauses for a second that it read in vain, in seconds
	lookPerRow = 100 * time.Microsecond // how long a look may take for each row that it finds: the rest of its time is reading in vain
)

// pause keeps a task of upkeepEvery from reading again and again the entries of an index whose rows are gone, which an old snapshot
// keeps. Where no floor can say which entries these are, the time that is spent on them is bounded instead, to a hundredth.
type pause struct{ until time.Time }

// over reports whether it is time to read again.
func (p *pause) over(now time.Time) bool { return !now.Before(p.until) }

// begin begins a pause after a look that took some time and found some rows. There is none if the next run is later anyway.
func (p *pause) begin(now time.Time, took time.Duration, rows int) {
	p.until = now.Add(pauseFor*(took-time.Duration(rows)*lookPerRow) - upkeepEvery)
}

// full makes a batch of a function that returns how many rows it changed. There may be more if it changed most; otherwise a pause begins.
func (p *pause) full(most int64, fn func(ctx context.Context) (int64, error)) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (more bool, err error) {
		began := time.Now()
		if !p.over(began) {
			return false, nil
		}
		n, err := fn(ctx)
		if n < most {
			now := time.Now()
			p.begin(now, now.Sub(began), int(n))
		}
		return n >= most, err
	}
}
