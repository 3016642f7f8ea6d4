package calendar

import "time"

// Shown returns the instants at which the clock of the timing's zone shows a wall time; it ignores the zone of on. Mostly there is one,
// and in an overlap there are two. In a gap there is none: skipped is the length of the gap, and until is the first instant after it.
func (t *Timing) Shown(on time.Time) (instants []time.Time, skipped time.Duration, until time.Time) {
	z := t.zone
	w := time.Date(on.Year(), on.Month(), on.Day(), on.Hour(), on.Minute(), on.Second(), 0, time.UTC).Unix()
	for i := z.find(w - int64(z.max)); i < len(z.starts) && z.starts[i] <= w-int64(z.min); i++ {
		begin, off := z.starts[i], z.offset(i)
		if at := w - off; at >= begin && at < z.end(i) {
			instants = append(instants, time.Unix(at, 0).UTC())
		}
		if i > 0 && w >= begin+z.offset(i-1) && w < begin+off {
			skipped, until = time.Duration(off-z.offset(i-1))*time.Second, time.Unix(begin, 0).UTC()
		}
	}
	return instants, skipped, until
}
