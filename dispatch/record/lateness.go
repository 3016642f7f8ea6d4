package record

import (
	"math/bits"
	"time"
)

// The series count how late ticks are in buckets: each bound is twice the previous one.
const (
	LatenessBuckets = 20                   // with a bound
	FirstLateness   = 5 * time.Millisecond // the bound of the first bucket
	NoBucket        = int16(-1)            // of a tick whose lateness does not count
)

// LatenessBucket returns the bucket of a lateness: the first one whose bound is not exceeded, or LatenessBuckets.
func LatenessBucket(late time.Duration) int16 {
	if late <= FirstLateness {
		return 0
	}
	n := bits.Len64(uint64((late - 1) / FirstLateness))
	return int16(min(n, LatenessBuckets))
}

// LatenessBound returns the bound of a bucket.
func LatenessBound(bucket int16) time.Duration { return FirstLateness << bucket }

// lateBucket returns the bucket of the lateness with which the tick was handed out. A tick of a backfill is late on purpose.
func (t *Tick) lateBucket() int16 {
	if t.Cause == Backfill {
		return NoBucket
	}
	return LatenessBucket(t.FiredAt.Sub(t.NominalAt))
}

// seriesKept is how far back a tick is counted as due at its nominal time.
const seriesKept = 7 * Day

// dueMinute returns the minute in which the tick became due. It is the minute of its nominal time. For a tick of a trigger or a
// backfill, or one whose nominal time is older than seriesKept, it is the minute that is given.
func (t *Tick) dueMinute(minute int64) int64 {
	if t.Cause == Manual || t.Cause == Backfill {
		return minute
	}
	if at := minuteOf(t.NominalAt); minute-at < int64(seriesKept/time.Minute) {
		return at
	}
	return minute
}

// minuteOf returns the minute of a moment, counted from 1970.
func minuteOf(at time.Time) int64 { return at.Unix() / 60 }
