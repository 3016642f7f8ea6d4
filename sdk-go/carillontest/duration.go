package carillontest

import (
	"strconv"
	"strings"
	"time"
)

// parseDuration parses the API's durations: whole numbers with units that fall from left to right, such as 1h30m. A day is 24 hours.
func parseDuration(text string) (total time.Duration, ok bool) {
	const units = "wdhms"
	lengths := []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}
	for last := -1; text != ""; {
		digits := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
		if digits < 1 || digits > 9 {
			return 0, false
		}
		n, err := strconv.ParseInt(text[:digits], 10, 64)
		unit := strings.IndexByte(units, text[digits])
		if err != nil || unit <= last || n > int64((1<<62)/lengths[unit]) {
			return 0, false
		}
		total, last, text = total+time.Duration(n)*lengths[unit], unit, text[digits+1:]
		ok = true
	}
	return total, ok
}

// formatDuration writes whole seconds as the API does: 30s, 5m, 1h30m, 24h, 30d.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < time.Second {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		suffix string
		length time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := d / u.length; n > 0 && (u.length < day || d >= 2*day) {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.suffix)
			d -= n * u.length
		}
	}
	return b.String()
}
