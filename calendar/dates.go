package calendar

import "math/bits"

// dates is a set of days from 1970 to 2150. Each month is a word with its days as bits 1 to 31.
type dates [(maxYear - minYear + 1) * 12]uint32

func (d *dates) month(year, month int) uint32 { return d[(year-minYear)*12+month-1] }

func (d *dates) add(day int) {
	y, m, dom := civil(day)
	if y >= minYear && y <= maxYear {
		d[(y-minYear)*12+m-1] |= 1 << dom
	}
}

func (d *dates) has(day int) bool {
	if day < minDay || day > maxDay {
		return false
	}
	y, m, dom := civil(day)
	return d.month(y, m)>>dom&1 != 0
}

// free returns the first day at or after day that is not in the set, at most limit days away.
func (d *dates) free(day, limit int) (int, bool) {
	if day < minDay {
		day = minDay
	}
	end := min(day+limit, maxDay)
	for day <= end {
		y, m, dom := civil(day)
		whole := uint32(1)<<(daysIn(y, m)+1) - 2
		if open := whole &^ d.month(y, m) >> dom << dom; open != 0 {
			day += bits.TrailingZeros32(open) - dom
			return day, day <= end
		}
		day += daysIn(y, m) - dom + 1
	}
	return 0, false
}

// freeBefore returns the last day at or before day that is not in the set, at most limit days away.
func (d *dates) freeBefore(day, limit int) (int, bool) {
	if day > maxDay {
		day = maxDay
	}
	end := max(day-limit, minDay)
	for day >= end {
		y, m, dom := civil(day)
		if open := (uint32(uint64(2)<<dom-1) &^ 1) &^ d.month(y, m); open != 0 {
			day -= dom - (bits.Len32(open) - 1)
			return day, day >= end
		}
		day -= dom
	}
	return 0, false
}

// taken returns the first day of the set at or after day.
func (d *dates) taken(day int) (int, bool) {
	day = max(day, minDay)
	for day <= maxDay {
		y, m, dom := civil(day)
		if rest := d.month(y, m) >> dom << dom; rest != 0 {
			return day + bits.TrailingZeros32(rest) - dom, true
		}
		day += daysIn(y, m) - dom + 1
	}
	return 0, false
}

// takenBefore returns the last day of the set at or before day.
func (d *dates) takenBefore(day int) (int, bool) {
	day = min(day, maxDay)
	for day >= minDay {
		y, m, dom := civil(day)
		if rest := d.month(y, m) & uint32(uint64(2)<<dom-1); rest != 0 {
			return day - dom + bits.Len32(rest) - 1, true
		}
		day -= dom
	}
	return 0, false
}
