package draw

import (
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
)

// Point is the number of ticks that are due in the minute that begins at At.
type Point struct {
	At    time.Time
	Ticks int64
}

// Curve describes a curve of ticks over time.
type Curve struct {
	From, To time.Time
	Points   []Point // minutes without ticks may be absent
	Quota    int64   // ticks that the tenant may have in a minute
	Zone     *time.Location
}

const (
	curveHeight = 10
	// A quota of more than so many times the greatest minute would flatten the curve. It is then not drawn.
	quotaInSight = 4
)

// Curve draws the greatest minute of each column, with the quota as a second line if it is near, and the times below. A curve without
// ticks is the empty string.
func (s Screen) Curve(c Curve) string {
	columns := min(max(s.width()-14, 10), 120)
	series, most := c.columns(columns)
	if most == 0 {
		return ""
	}
	lines := [][]float64{series}
	options := []asciigraph.Option{
		asciigraph.Height(curveHeight), asciigraph.LowerBound(0), asciigraph.Precision(0),
		asciigraph.YAxisValueFormatter(func(v float64) string { return Count(int64(v + 0.5)) }),
		asciigraph.XAxisRange(float64(c.From.Unix()), float64(c.To.Unix())),
		asciigraph.XAxisTickCount(min(max(columns/12, 2), 7)),
		asciigraph.XAxisValueFormatter(c.label),
	}
	colours, legends := []asciigraph.AnsiColor{asciigraph.Cyan}, []string{s.paint("─", plain) + " ticks a minute, the most in each column"}
	if c.Quota > 0 && float64(c.Quota) <= quotaInSight*most {
		quota := make([]float64, len(series))
		for i := range quota {
			quota[i] = float64(c.Quota)
		}
		lines = append(lines, quota)
		colours, legends = append(colours, asciigraph.Red), append(legends, s.Bad("╌")+" quota, "+Count(c.Quota)+" a minute")
		options = append(options, asciigraph.SeriesChars(asciigraph.CharSet{}, asciigraph.CreateCharSet("╌")))
	}
	if s.Colour {
		options = append(options, asciigraph.SeriesColors(colours...))
	}
	text := asciigraph.PlotMany(lines, options...)
	var out strings.Builder
	for line := range strings.Lines(text + "\n" + s.wrap(legends) + "\n") {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

// columns returns the greatest minute in each column, and the greatest of all.
func (c Curve) columns(n int) (series []float64, most float64) {
	series = make([]float64, n)
	span := c.To.Sub(c.From)
	for _, p := range c.Points {
		at := int(float64(n) * float64(p.At.Sub(c.From)) / float64(span))
		if span <= 0 || at < 0 || at >= n {
			continue
		}
		series[at] = max(series[at], float64(p.Ticks))
		most = max(most, series[at])
	}
	return series, most
}

// label writes a time below the curve: with the day if the curve is longer than a day.
func (c Curve) label(unix float64) string {
	at := time.Unix(int64(unix), 0).In(c.Zone)
	if c.To.Sub(c.From) > 26*time.Hour {
		return at.Format("2 Jan 15h")
	}
	return at.Format("15:04")
}
