package calendar

import (
	"fmt"
	"math/bits"
	"strings"
)

func elapsedReading(seconds int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"week", 7 * daySeconds}, {"day", daySeconds}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		if seconds%u.size == 0 {
			if n := int(seconds / u.size); n > 1 {
				return plural(n, u.name)
			}
			return u.name
		}
	}
	return ""
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}

func numbers(mask uint64) []string {
	var list []string
	for ; mask != 0; mask &= mask - 1 {
		list = append(list, fmt.Sprint(bits.TrailingZeros64(mask)))
	}
	return list
}

// and joins a list with commas and "and".
func and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}
