package calendar

import "unsafe"

// Bytes returns an estimate of the memory that only this timing uses. It is rather too large than too small, by a small factor at most.
// Caches of timings use it as their limit, because a timing with timed exclusions is a thousand times as large as a simple one.
func (t *Timing) Bytes() int {
	const (
		table = int(unsafe.Sizeof(dates{})) * 11 / 10 // with the allocator's overhead
		set   = 400                                   // fields, an interval or a rule, with its source
	)
	p := &t.plan
	n := int(unsafe.Sizeof(*t)) + set*(len(p.Fields)+len(p.Every)+1) + 64*len(p.Walls) + 24*len(p.Moments) + 160*len(p.Relative) + 40*len(p.Moved)
	for _, w := range t.notes {
		n += len(w.Detail) + 64
	}
	if r := p.Rule; r != nil {
		n += 2*set + 48*(len(r.Plus)+len(r.Minus)) + 24*(len(r.Months)+len(r.WeekNos)+len(r.YearDays)+len(r.Days)+len(r.Weekdays)+len(r.SetPos))
	}
	w := p.Without
	if w == nil {
		return n
	}
	tables := 1 + len(w.Times)
	if len(w.Times) > 0 { // each source has its own tables
		tables += 2 * (len(t.sources) + 1)
	}
	n += tables*table + set*(len(w.Days)+len(w.Times)) + 16*len(w.Dates)
	for _, name := range w.Named {
		n += len(name) + 16
	}
	return n
}
