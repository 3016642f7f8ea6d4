package calendar

import (
	"fmt"
	"time"
)

const (
	daySeconds = 86400
	minYear    = 1970
	maxYear    = 2150 // the last year with ticks
	lastYear   = 2199 // the last year that a spec may name
)

// minDay and maxDay are the first and the last day that can have a tick, in days since 1970-01-01.
var (
	minDay = dayNumber(minYear, 1, 1)
	maxDay = dayNumber(maxYear, 12, 31)
)

// A wall is a wall time, which has no zone: the seconds since 1970-01-01T00:00:00 on the clock.
type wall = int64

// Date is a day of the proleptic Gregorian calendar.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

// ParseDate parses a date in the form 2006-01-02, in a year from 1970 to 2199.
func ParseDate(s string) (Date, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil || len(s) != len(time.DateOnly) {
		return Date{}, fmt.Errorf("%q is not a date like 2026-12-24", s)
	}
	if t.Year() < minYear || t.Year() > lastYear {
		return Date{}, fmt.Errorf("%q is not in a year from %d to %d", s, minYear, lastYear)
	}
	return Date{t.Year(), t.Month(), t.Day()}, nil
}

// String returns the date in the form 2006-01-02.
func (d Date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d.Year, int(d.Month), d.Day) }

func (d Date) day() int { return dayNumber(d.Year, int(d.Month), d.Day) }

func dateOf(day int) Date {
	y, m, d := civil(day)
	return Date{y, time.Month(m), d}
}

// dayNumber returns the number of days from 1970-01-01 to a date in year 1 or later. It uses the Euclidean affine functions of Neri and
// Schneider: years begin in March, so that the leap day is the last day of its year.
func dayNumber(year, month, day int) int {
	if month <= 2 {
		year--
		month += 12
	}
	century := int(uint(year) / 100)
	return 1461*year>>2 - century + century>>2 + (979*month-2919)>>5 + day - 719469
}

// civil returns the date of a day in the years 0 to 32767. It is the inverse of dayNumber.
func civil(day int) (year, month, dom int) {
	n := uint64(day + 719468)
	n1 := 4*n + 3
	century := n1 / 146097
	n2 := n1%146097 | 3
	p := 2939745 * n2
	y := 100*century + p>>32
	doy := (p & 0xffffffff) / 2939745 / 4
	n3 := 2141*doy + 197913
	m := n3 >> 16
	d := n3 & 0xffff / 2141
	if doy >= 306 {
		return int(y) + 1, int(m) - 12, int(d) + 1
	}
	return int(y), int(m), int(d) + 1
}

// weekday returns the day of the week of a day, 0 for Sunday.
func weekday(day int) int { return floorMod(day+4, 7) }

func isLeap(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

var monthDays = [13]uint8{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func daysIn(year, month int) int {
	if month == 2 && isLeap(year) {
		return 29
	}
	return int(monthDays[month])
}

func floorDiv[T int | int64](a, b T) T {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod[T int | int64](a, b T) T {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}

// splitWall returns the day of a wall time and the second of that day.
func splitWall(w wall) (day, seconds int) {
	d := floorDiv(w, daySeconds)
	return int(d), int(w - d*daySeconds)
}
