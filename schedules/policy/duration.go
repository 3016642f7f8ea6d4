package policy

import (
	"strconv"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

var units = []struct {
	suffix string
	length time.Duration
}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

// ParseDuration reads "90s", "5m", "1h30m", "1d" or "1w": whole numbers with units that fall from left to right.
func ParseDuration(s string) (time.Duration, bool) {
	var total time.Duration
	rest, last := s, -1
	for rest != "" {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits > 9 || digits == len(rest) {
			return 0, false
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil {
			return 0, false
		}
		unit := -1
		for i, u := range units {
			if strings.HasPrefix(rest[digits:], u.suffix) {
				unit = i
			}
		}
		if unit <= last {
			return 0, false
		}
		length := units[unit].length
		if n > int64((1<<62)/length) || total > 1<<62-time.Duration(n)*length {
			return 0, false
		}
		total += time.Duration(n) * length
		rest, last = rest[digits+1:], unit
	}
	return total, s != ""
}

// FormatDuration writes whole seconds the way ParseDuration reads them: 30s, 5m, 1h30m, 24h, 30d. What is less than two
// days is in hours.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < time.Second {
		return "0s"
	}
	var b strings.Builder
	for _, u := range units[1:] {
		if n := d / u.length; n > 0 && (u.length < day || d >= 2*day) {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.suffix)
			d -= n * u.length
		}
	}
	return b.String()
}

// Within reads a duration and holds it between two bounds, both included; the fault is located at pointer.
func Within(pointer, s string, least, most time.Duration) (time.Duration, error) {
	d, ok := ParseDuration(s)
	if !ok {
		return 0, fault.Invalid(pointer, "%q is not a duration such as 90s, 5m, 1h30m, 1d or 1w", s)
	}
	if d < least || d > most {
		return 0, fault.Invalid(pointer, "%s is not between %s and %s", s, FormatDuration(least), FormatDuration(most))
	}
	return d, nil
}
