package calendar

import "math/bits"

// fields is a compiled cron expression or calendar. It stores sets as bits, so that the search for the next match is arithmetic. Bit n is
// the value n; years count from 1970, and days of the week from Sunday. After normal, expressions with the same meaning have equal
// fields.
type fields struct {
	Seconds uint64    `json:"s"`
	Minutes uint64    `json:"m"`
	Hours   uint32    `json:"h"`
	Days    uint32    `json:"d,omitempty"`  // days of the month, 1 to 31
	Last    uint32    `json:"l,omitempty"`  // bit n: the day n days before the last of the month
	Nearest uint32    `json:"w,omitempty"`  // bit n: the Monday to Friday in the month that is nearest to day n; bit 0: the last Monday to Friday
	Months  uint16    `json:"mo,omitempty"` // 1 to 12
	Week    uint8     `json:"dw,omitempty"` // days of the week
	Nth     [5]uint8  `json:"n,omitzero"`   // Nth[k-1]: days of the week that match the kth time in a month
	Back    [5]uint8  `json:"b,omitzero"`   // Back[k-1]: days of the week that match the kth time from the end of a month
	Or      bool      `json:"or,omitempty"` // day of month or day of week must match, instead of both
	Years   [4]uint64 `json:"y"`
}

const (
	allSixty = 1<<60 - 1
	allHours = 1<<24 - 1
	allDays  = 1<<32 - 2
	allMonth = 1<<13 - 2
	allWeek  = 1<<7 - 1
)

var allYears = func() (y [4]uint64) {
	for n := range lastYear - minYear + 1 {
		y[n/64] |= 1 << (n % 64)
	}
	return y
}()

// normal clears parts without effect, so that equal sets are equal values.
func (f fields) normal() fields {
	anyDay := f.Days == allDays
	anyWeekday := f.Week == allWeek
	switch {
	case f.Or && (anyDay || anyWeekday):
		f.Days, f.Last, f.Nearest = allDays, 0, 0
		f.Week, f.Nth, f.Back, f.Or = allWeek, [5]uint8{}, [5]uint8{}, false
	case anyDay && anyWeekday:
		f.Last, f.Nearest, f.Nth, f.Back, f.Or = 0, 0, [5]uint8{}, [5]uint8{}, false
	case anyDay:
		f.Last, f.Nearest = 0, 0
	case anyWeekday:
		f.Nth, f.Back = [5]uint8{}, [5]uint8{}
	}
	return f
}

// days returns the matching days of a month as bits 1 to 31.
func (f *fields) days(year, month int) uint32 {
	length := daysIn(year, month)
	whole := uint32(1)<<(length+1) - 2
	if f.Week == allWeek && !f.Or && f.Last|f.Nearest == 0 {
		return f.Days & whole
	}
	begin := weekday(dayNumber(year, month, 1))
	dom := f.Days
	if f.Last != 0 {
		dom |= bits.Reverse32(f.Last) >> (31 - length)
	}
	if f.Nearest != 0 {
		dom |= f.nearest(begin, length)
	}
	dow := weekPattern(f.Week, begin)
	for k, week := range f.Nth {
		if week != 0 {
			dow |= weekPattern(week, begin) & (0x7f << (7*k + 1))
		}
	}
	for k, week := range f.Back {
		if week != 0 {
			dow |= weekPattern(week, begin) & uint32(uint64(0x7f)<<(length+22-7*k)>>28)
		}
	}
	if f.Or {
		return (dom | dow) & whole
	}
	return dom & dow & whole
}

// weekPattern returns the days with the given days of the week, in a month that begins on weekday begin, as bits 1 to 31 and more.
func weekPattern(week uint8, begin int) uint32 {
	turned := (uint64(week)>>begin | uint64(week)<<(7-begin)) & 0x7f
	return uint32(turned*0x810204081) << 1
}

// nearest returns the days of Nearest in a month of length days that begins on weekday begin.
func (f *fields) nearest(begin, length int) uint32 {
	var out uint32
	for rest := f.Nearest; rest != 0; rest &= rest - 1 {
		day := bits.TrailingZeros32(rest)
		lastOf := day == 0
		if lastOf {
			day = length
		}
		if day > length {
			continue
		}
		switch (begin + day - 1) % 7 {
		case 6: // Saturday
			if day == 1 {
				day += 2
			} else {
				day--
			}
		case 0: // Sunday
			if day == length {
				day -= 2
			} else {
				day++
			}
		}
		out |= 1 << day
	}
	return out
}

// nextTime returns the first matching second of the day at or after sec.
func (f *fields) nextTime(sec int) (int, bool) {
	h, m, s := sec/3600, sec/60%60, sec%60
	if f.Hours>>h&1 != 0 {
		if f.Minutes>>m&1 != 0 {
			if rest := f.Seconds >> s; rest != 0 {
				return sec + bits.TrailingZeros64(rest), true
			}
		}
		if rest := f.Minutes >> (m + 1); rest != 0 {
			return h*3600 + (m+1+bits.TrailingZeros64(rest))*60 + bits.TrailingZeros64(f.Seconds), true
		}
	}
	rest := f.Hours >> (h + 1)
	if rest == 0 {
		return 0, false
	}
	return (h+1+bits.TrailingZeros32(rest))*3600 + bits.TrailingZeros64(f.Minutes)*60 + bits.TrailingZeros64(f.Seconds), true
}

// prevTime returns the last matching second of the day at or before sec.
func (f *fields) prevTime(sec int) (int, bool) {
	h, m, s := sec/3600, sec/60%60, sec%60
	if f.Hours>>h&1 != 0 {
		if f.Minutes>>m&1 != 0 {
			if rest := f.Seconds & (2<<s - 1); rest != 0 {
				return h*3600 + m*60 + bits.Len64(rest) - 1, true
			}
		}
		if rest := f.Minutes & (1<<m - 1); rest != 0 {
			return h*3600 + (bits.Len64(rest)-1)*60 + bits.Len64(f.Seconds) - 1, true
		}
	}
	rest := f.Hours & (1<<h - 1)
	if rest == 0 {
		return 0, false
	}
	return (bits.Len32(rest)-1)*3600 + (bits.Len64(f.Minutes)-1)*60 + bits.Len64(f.Seconds) - 1, true
}

func (f *fields) hasYear(year int) bool {
	n := year - minYear
	return uint(n) < 256 && f.Years[n>>6]>>(n&63)&1 != 0
}

// times returns how many seconds of a day match.
func (f *fields) times() int {
	return bits.OnesCount32(f.Hours) * bits.OnesCount64(f.Minutes) * bits.OnesCount64(f.Seconds)
}

// everyDay reports whether the days of the month, the months and the years do not restrict the days. See everyWeek for the week.
func (f *fields) everyDay() bool {
	return f.Days == allDays && f.everyWeek()
}

// everyWeek reports whether only the day of the week decides which days match.
func (f *fields) everyWeek() bool {
	return f.Days == allDays && !f.Or && f.Nth == [5]uint8{} && f.Back == [5]uint8{} && f.Months == allMonth && f.Years == allYears
}
