package draw

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// Crest is the schedules of one time zone.
type Crest struct {
	Zone   string
	Offset time.Duration // from UTC, now
	Count  int64
	NextAt time.Time // the first coming tick; zero: none
}

// The offsets of the rows: the easternmost has the first new day. They are the hours that people live in.
const eastmost, westmost = 14, -11

// Wave draws a row for each hour of offset from UTC, from east to west: a bar of its schedules, their number, when the first of them
// fires, and the largest zones. An offset of 5:30 is in the row of 5.
func (s Screen) Wave(crests []Crest, in *time.Location) string {
	rows := make(map[int][]Crest)
	var most int64
	for _, c := range crests {
		hour := floorHour(c.Offset)
		rows[hour] = append(rows[hour], c)
	}
	low, high := westmost, eastmost
	for hour, row := range rows {
		low, high = min(low, hour), max(high, hour)
		most = max(most, total(row))
	}
	bars := max(8, s.width()/3)
	var out strings.Builder
	for hour := high; hour >= low; hour-- {
		line := fmt.Sprintf("UTC%+03d ", hour)
		if hour == 0 {
			line = "UTC     "[:len(line)]
		}
		row := rows[hour]
		if len(row) == 0 {
			out.WriteString(s.Quiet(line+" ·") + "\n")
			continue
		}
		drawn := bar(total(row), most, bars)
		line += " " + s.paint(drawn, plain) + strings.Repeat(" ", bars-ansi.StringWidth(drawn)) + fmt.Sprintf(" %9s", Count(total(row)))
		line += "  " + firstOf(row, in) + "  " + s.Quiet(largest(row))
		out.WriteString(strings.TrimRight(s.Cut(line), " ") + "\n")
	}
	return out.String()
}

func floorHour(d time.Duration) int {
	hours := int(d / time.Hour)
	if d < 0 && d%time.Hour != 0 {
		hours--
	}
	return hours
}

func total(row []Crest) (n int64) {
	for _, c := range row {
		n += c.Count
	}
	return n
}

func firstOf(row []Crest, in *time.Location) string {
	var first time.Time
	for _, c := range row {
		if !c.NextAt.IsZero() && (first.IsZero() || c.NextAt.Before(first)) {
			first = c.NextAt
		}
	}
	if first.IsZero() {
		return "     "
	}
	return first.In(in).Format("15:04")
}

// largest names the zone with the most schedules, and how many other zones there are.
func largest(row []Crest) string {
	top := slices.MaxFunc(row, func(a, b Crest) int {
		if a.Count != b.Count {
			return int(min(max(a.Count-b.Count, -1), 1))
		}
		return strings.Compare(b.Zone, a.Zone)
	})
	if len(row) == 1 {
		return top.Zone
	}
	return fmt.Sprintf("%s and %d more", top.Zone, len(row)-1)
}
