package calendar

import (
	"fmt"
	"time"
)

// maxEvery is the longest interval: 3,660 days, ten years.
const maxEvery = 3660 * 24 * time.Hour

// parseDuration parses durations such as 90s, 1h30m, 1d and 2w. civil reports that the text has days and weeks only, so that it counts
// calendar days.
func parseDuration(text string) (d time.Duration, civil bool, err error) {
	rest, units, days := text, 0, 0
	for rest != "" {
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		v, ok := longNumber(rest[:n])
		if !ok || n == len(rest) {
			return 0, false, fmt.Errorf("%q is not a duration like 90s, 5m, 1h30m, 1d or 1w", text)
		}
		unit, used := time.Duration(0), 1
		switch rest[n] {
		case 's':
			unit = time.Second
		case 'm':
			unit = time.Minute
			if len(rest) > n+1 && rest[n+1] == 's' {
				return 0, false, fmt.Errorf("%q is not a whole number of seconds", text)
			}
		case 'h':
			unit = time.Hour
		case 'd':
			unit, days = 24*time.Hour, days+1
		case 'w':
			unit, days = 7*24*time.Hour, days+1
		default:
			return 0, false, fmt.Errorf("%q is not a duration like 90s, 5m, 1h30m, 1d or 1w", text)
		}
		if v > int64(maxEvery*2/unit) || d > maxEvery*2 {
			return 0, false, fmt.Errorf("%q is too long", text)
		}
		d += time.Duration(v) * unit
		units++
		rest = rest[n+used:]
	}
	if units == 0 {
		return 0, false, fmt.Errorf("%q is not a duration like 90s, 5m, 1h30m, 1d or 1w", text)
	}
	return d, days == units, nil
}

func longNumber(text string) (int64, bool) {
	if text == "" || len(text) > 12 {
		return 0, false
	}
	v := int64(0)
	for _, c := range []byte(text) {
		v = v*10 + int64(c-'0')
	}
	return v, true
}
