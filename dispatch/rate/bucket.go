package rate

import (
	"math"
	"time"
)

// Rate is a number of ticks a second. After a pause of more than a minute it rises evenly from a tenth, over Ramp.
type Rate struct {
	PerSecond int
	Ramp      time.Duration
}

// Of returns a stored rate: ticks a second, and the seconds of the ramp. A rate of 0 a second is no limit.
func Of(perSecond, ramp *int32) (r Rate) {
	if perSecond != nil {
		r.PerSecond = int(*perSecond)
	}
	if ramp != nil {
		r.Ramp = time.Duration(*ramp) * time.Second
	}
	return r
}

// Bucket counts the tokens of a rate. Its zero value has had a long pause.
type Bucket struct {
	Tokens   float64    // less than 0: a debt
	At       time.Time  // when they were counted
	RampFrom *time.Time // when the current ramp began; nil: there is none
}

const (
	depth    = 100 * time.Millisecond // a bucket holds at most the tokens of this time
	pause    = time.Minute            // after it the ramp begins again
	rampLow  = 0.1                    // the part of the rate at which a ramp begins
	mostDebt = time.Minute            // a debt beyond the tokens of this time is forgiven
)

// factor returns which part of the full rate applies at a moment.
func (b *Bucket) factor(r Rate, at time.Time) float64 {
	if b.RampFrom == nil || r.Ramp <= 0 {
		return 1
	}
	done := at.Sub(*b.RampFrom).Seconds() / r.Ramp.Seconds()
	return rampLow + (1-rampLow)*min(1, max(0, done))
}

// came returns how many tokens come between two moments: the area under the rate, which rises in a straight line and then stays.
func (b *Bucket) came(r Rate, from, to time.Time) float64 {
	area := 0.0
	if b.RampFrom != nil {
		if end := b.RampFrom.Add(r.Ramp); from.Before(end) {
			risen := to
			if end.Before(to) {
				risen = end
			}
			area, from = (b.factor(r, from)+b.factor(r, risen))/2*risen.Sub(from).Seconds(), risen
		}
	}
	return float64(r.PerSecond) * (area + max(0, to.Sub(from).Seconds()))
}

// Fill counts the tokens as of a moment.
func (b *Bucket) Fill(r Rate, now time.Time) {
	if now.Before(b.At) { // the clock was set back
		b.At = now
	}
	if now.Sub(b.At) > pause { // also of a bucket that is new
		b.RampFrom = nil
		if r.Ramp > 0 {
			b.RampFrom = &now
		}
		b.Tokens, b.At = min(b.Tokens, 0)+max(1, float64(r.PerSecond)*b.factor(r, now)*depth.Seconds()), now
	}
	if b.RampFrom != nil && !now.Before(b.RampFrom.Add(r.Ramp)) && !b.At.Before(b.RampFrom.Add(r.Ramp)) {
		b.RampFrom = nil
	}
	full := max(1, float64(r.PerSecond)*b.factor(r, now)*depth.Seconds())
	b.Tokens = max(min(full, b.Tokens+b.came(r, b.At, now)), -mostDebt.Seconds()*float64(r.PerSecond))
	b.At = now
}

// Whole returns how many whole tokens there are.
func (b *Bucket) Whole() int { return max(0, int(math.Floor(b.Tokens+1e-6))) }

// Spend takes up to want tokens, and returns how many it took. It is called after Fill.
func (b *Bucket) Spend(want int) int {
	n := max(0, min(want, b.Whole()))
	b.Tokens -= float64(n)
	return n
}

// Wait returns how long it takes until there is a token.
func (b *Bucket) Wait(r Rate) time.Duration {
	if b.Tokens >= 1 {
		return 0
	}
	return time.Duration((1 - b.Tokens) / (float64(r.PerSecond) * b.factor(r, b.At)) * float64(time.Second))
}
