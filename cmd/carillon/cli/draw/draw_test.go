package draw_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a picture with the file of that name, and checks that its lines fit the screen and end without blanks.
func golden(t *testing.T, name string, s draw.Screen, got string) {
	t.Helper()
	for line := range strings.Lines(got) {
		line = strings.TrimSuffix(line, "\n")
		if n := ansi.StringWidth(line); n > s.Width {
			t.Errorf("%s: a line has %d columns of %d: %q", name, n, s.Width, line)
		}
		if !s.Colour && (strings.Contains(line, "\x1b") || strings.HasSuffix(line, " ")) {
			t.Errorf("%s: an escape sequence, or blanks at the end: %q", name, line)
		}
	}
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%s: %v, got\n%s\nwant\n%s", name, err, got, want)
	}
}

func TestMonths(t *testing.T) {
	t.Parallel()
	days := map[calendar.Date]draw.Day{
		{Year: 2026, Month: 10, Day: 23}: {Sent: 1},
		{Year: 2026, Month: 10, Day: 24}: {Sent: 3, Failed: 1},
		{Year: 2026, Month: 10, Day: 25}: {Coming: 2, ClockChange: true},
		{Year: 2026, Month: 10, Day: 26}: {Coming: 1},
		{Year: 2026, Month: 11, Day: 11}: {Excluded: true},
		{Year: 2026, Month: 11, Day: 30}: {Coming: 1},
		{Year: 2026, Month: 12, Day: 25}: {Excluded: true, Coming: 1},
	}
	first, last := calendar.Date{Year: 2026, Month: 10, Day: 20}, calendar.Date{Year: 2026, Month: 12, Day: 25}
	for name, s := range map[string]draw.Screen{"months_wide": {Width: 120}, "months": {Width: 80}, "months_narrow": {Width: 40}, "months_colour": {Width: 80, Colour: true}} {
		golden(t, name, s, s.Months(first, last, days))
	}
	s := draw.Screen{Width: 40}
	golden(t, "month_empty", s, s.Months(calendar.Date{Year: 2027, Month: 2, Day: 1}, calendar.Date{Year: 2027, Month: 2, Day: 1}, nil))
}

func curve(quota int64) draw.Curve {
	from := time.Date(2026, 11, 23, 12, 30, 0, 0, time.UTC)
	c := draw.Curve{From: from, To: from.Add(24 * time.Hour), Quota: quota, Zone: time.UTC}
	for i := range 24 {
		at := from.Add(time.Duration(i)*time.Hour + 30*time.Minute)
		c.Points = append(c.Points, draw.Point{At: at, Ticks: int64(200 + 800*(i%8))}, draw.Point{At: at.Add(time.Minute), Ticks: 100})
	}
	return c
}

func TestCurves(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]draw.Screen{"curve": {Width: 80}, "curve_narrow": {Width: 40}, "curve_colour": {Width: 60, Colour: true}} {
		golden(t, name, s, s.Curve(curve(6000)))
	}
	s := draw.Screen{Width: 80}
	golden(t, "curve_far_quota", s, s.Curve(curve(3_000_000)))
	if got := s.Curve(draw.Curve{}); got != "" {
		t.Errorf("without ticks: got %q", got)
	}
	// A curve of two days names days.
	c := curve(0)
	c.To = c.From.Add(48 * time.Hour)
	golden(t, "curve_days", s, s.Curve(c))
}

func TestWaves(t *testing.T) {
	t.Parallel()
	at := func(clock string) time.Time {
		parsed, err := time.Parse(time.DateTime, "2026-11-24 "+clock+":00")
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	crests := []draw.Crest{
		{"Asia/Tokyo", 9 * time.Hour, 12_000, at("23:00")},
		{"Asia/Kolkata", 5*time.Hour + 30*time.Minute, 41_203, at("02:30")},
		{"Asia/Karachi", 5 * time.Hour, 800, at("03:00")},
		{"Europe/London", 0, 9_000, at("08:00")},
		{"America/New_York", -5 * time.Hour, 30_000, at("13:00")},
		{"America/Toronto", -5 * time.Hour, 30_000, at("12:00")},
		{"America/Bogota", -5 * time.Hour, 1, time.Time{}},
		{"America/St_Johns", -3*time.Hour - 30*time.Minute, 2, time.Time{}},
	}
	for name, s := range map[string]draw.Screen{"wave": {Width: 80}, "wave_narrow": {Width: 48}, "wave_colour": {Width: 80, Colour: true}} {
		golden(t, name, s, s.Wave(crests, time.UTC))
	}
	s := draw.Screen{Width: 80}
	golden(t, "wave_empty", s, s.Wave(nil, time.UTC))
	if rows := strings.Count(s.Wave(nil, time.UTC), "\n"); rows != 26 {
		t.Errorf("got %d rows without schedules, want 26", rows)
	}
	if rows := strings.Count(s.Wave([]draw.Crest{{"Etc/GMT+12", -12 * time.Hour, 1, time.Time{}}}, time.UTC), "\n"); rows != 27 {
		t.Errorf("got %d rows with a zone at -12, want 27", rows)
	}
}

func TestCards(t *testing.T) {
	t.Parallel()
	rows := []draw.Row{{"schedules", "4,812"}, {"running", "12"}, {"lateness", "p50 41 ms, p99 143 ms, and a text that is too long for the narrow screen"}}
	for name, s := range map[string]draw.Screen{"card": {Width: 100}, "card_narrow": {Width: 40}, "card_colour": {Width: 100, Colour: true}} {
		golden(t, name, s, s.Card("acme", rows))
	}
	s := draw.Screen{Width: 30}
	golden(t, "card_long_title", s, s.Card("a title that is longer than the screen is wide", rows[:1]))
}

func TestWrap(t *testing.T) {
	t.Parallel()
	s := draw.Screen{Width: 20}
	for text, want := range map[string]string{
		"short":                                "short",
		"a  text that is longer than a line":   "a  text that is\n  longer than a line",
		"the day 2030-03-30 12:00":             "the day 2030-03-30\n  12:00",
		"  name  a text that is much too long": "  name  a text that\n  is much too long",
	} {
		if got := s.Wrap(text, 2); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestSpark(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]float64{
		"":         nil,
		"▁▁▁":      {0, 0, 0},
		"▁▂▃▄▅▆▇█": {0, 1, 2, 3, 4, 5, 6, 7},
		"█▁▅":      {1000, -5, 500},
	} {
		if got := draw.Spark(values); got != want {
			t.Errorf("%v: got %s, want %s", values, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]int64{"0": 0, "999": 999, "1,000": 1000, "-999": -999, "-1,234,567": -1234567, "12,345,678": 12345678} {
		if got := draw.Count(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
