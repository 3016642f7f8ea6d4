package output

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// millis returns a number of milliseconds as a duration with a unit.
func millis(text string) string {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	if n < 1000 {
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") + " ms"
	}
	return Span(time.Duration(n * float64(time.Millisecond)))
}

// grouped separates the thousands of a whole number.
func grouped(text string) string {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) < 5 || strings.ContainsAny(digits, ".eE") {
		return text
	}
	var out strings.Builder
	out.WriteString(text[:len(text)-len(digits)])
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	return out.String()
}

// sized returns a number of bytes with a unit.
func sized(text string) string {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}

// Span returns a duration in its one or two largest units, such as 2h5m, 3d4h or 41s.
func Span(d time.Duration) string {
	d = d.Abs()
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return two(int(d.Minutes()), "m", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "m")
	case d < 365*24*time.Hour:
		return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
	days := int(d.Hours()) / 24
	return two(days/365, "y", days%365, "d")
}

func two(large int, unit string, small int, smallUnit string) string {
	if small == 0 {
		return fmt.Sprintf("%d%s", large, unit)
	}
	return fmt.Sprintf("%d%s%d%s", large, unit, small, smallUnit)
}

// Milliseconds returns milliseconds with a unit, such as 41 ms or 2m3s.
func Milliseconds(ms int64) string { return millis(strconv.FormatInt(ms, 10)) }

// largest is relative with only the largest unit.
func largest(t, now time.Time) string {
	text := relative(t, now)
	if i := strings.IndexAny(text, "ydhm"); i > 0 && text != "now" {
		if rest := strings.IndexByte(text[i:], ' '); rest >= 0 {
			return text[:i+1] + text[i+rest:]
		}
		return text[:i+1]
	}
	return text
}

// relative returns the distance of an instant from now in words.
func relative(t, now time.Time) string {
	switch d := t.Sub(now); {
	case d.Abs() < time.Second:
		return "now"
	case d > 0:
		return "in " + Span(d)
	default:
		return Span(d) + " ago"
	}
}
