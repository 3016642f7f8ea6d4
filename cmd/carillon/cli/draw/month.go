package draw

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/carillonhq/carillon/calendar"
)

// Day is what happens on one day.
type Day struct {
	Sent        int  // ticks that fired
	Failed      int  // ticks of which all attempts failed, or that were missed
	Coming      int  // ticks that will fire
	Excluded    bool // an exclusion drops a tick
	ClockChange bool // the clock of the zone is set forward or back
}

// monthWidth is the width of a month: seven days of five columns.
const monthWidth = 7 * 5

// Months draws the months from the first to the last day, as many beside each other as fit, and a legend of the signs that occur.
func (s Screen) Months(first, last calendar.Date, days map[calendar.Date]Day) string {
	var months []string
	for at := month(first); !at.After(month(last)); at = at.AddDate(0, 1, 0) {
		months = append(months, s.month(at, days))
	}
	beside := max(1, min(3, (s.width()+3)/(monthWidth+3)))
	var out strings.Builder
	for len(months) > 0 {
		n := min(beside, len(months))
		row := months[0]
		for _, m := range months[1:n] {
			row = lipgloss.JoinHorizontal(lipgloss.Top, row, "   ", m)
		}
		months = months[n:]
		for line := range strings.Lines(row + "\n") {
			out.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
		out.WriteString("\n")
	}
	return out.String() + s.legend(days) + "\n"
}

func month(d calendar.Date) time.Time { return time.Date(d.Year, d.Month, 1, 0, 0, 0, 0, time.UTC) }

// month draws one month, whose weeks begin on Monday.
func (s Screen) month(first time.Time, days map[calendar.Date]Day) string {
	title := first.Format("January 2006")
	lines := []string{strings.Repeat(" ", (monthWidth-len(title))/2) + title, s.Quiet(" Mo   Tu   We   Th   Fr   Sa   Su")}
	before := (int(first.Weekday()) + 6) % 7
	line := strings.Repeat(" ", 5*before)
	for at := first; at.Month() == first.Month(); at = at.AddDate(0, 0, 1) {
		line += s.day(at.Day(), days[calendar.Date{Year: at.Year(), Month: at.Month(), Day: at.Day()}])
		if at.Weekday() == time.Sunday {
			lines, line = append(lines, line), ""
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	for i, l := range lines {
		lines[i] = l + strings.Repeat(" ", max(0, monthWidth-lipgloss.Width(l)))
	}
	return strings.Join(lines, "\n")
}

// The signs of a month.
const (
	signSent        = "●"
	signFailed      = "✕"
	signComing      = "○"
	signSeveral     = "◎"
	signExcluded    = "░"
	signClockChange = "◆"
)

// day draws a day in five columns: its number, the sign of its ticks, the sign of a change of the clock, and a blank.
func (s Screen) day(number int, d Day) string {
	text, sign := fmt.Sprintf("%3d", number), " "
	switch {
	case d.Failed > 0:
		sign = s.paint(signFailed, bad)
	case d.Sent > 0:
		sign = s.paint(signSent, good)
	case d.Coming > 1:
		sign = s.paint(signSeveral, plain)
	case d.Coming == 1:
		sign = s.paint(signComing, plain)
	case d.Excluded:
		sign = s.paint(signExcluded, quiet)
	default:
		text = s.Quiet(text)
	}
	change := " "
	if d.ClockChange {
		change = s.paint(signClockChange, warn)
	}
	return text + sign + change
}

func (s Screen) legend(days map[calendar.Date]Day) string {
	var all Day
	several := false
	for _, d := range days {
		several = several || d.Coming > 1 && d.Failed+d.Sent == 0
		all.Sent, all.Failed = all.Sent+d.Sent, all.Failed+d.Failed
		if d.Coming == 1 && d.Failed+d.Sent == 0 {
			all.Coming++
		}
		all.Excluded, all.ClockChange = all.Excluded || d.Excluded, all.ClockChange || d.ClockChange
	}
	var parts []string
	for _, p := range []struct {
		some       bool
		sign, text string
	}{
		{all.Sent > 0, s.paint(signSent, good), "fired"},
		{all.Failed > 0, s.paint(signFailed, bad), "failed or missed"},
		{all.Coming > 0, s.paint(signComing, plain), "fires"},
		{several, s.paint(signSeveral, plain), "fires more than once"},
		{all.Excluded, s.paint(signExcluded, quiet), "excluded"},
		{all.ClockChange, s.paint(signClockChange, warn), "the clock changes"},
	} {
		if p.some {
			parts = append(parts, p.sign+" "+p.text)
		}
	}
	if parts == nil {
		return "nothing fires"
	}
	return s.wrap(parts)
}
