// Package draw makes the pictures of the command line: month grids, curves, waves, sparklines and cards. Its functions return text and do
// no I/O. A picture never has more columns than its screen, and has escape sequences only if the screen has colour.
package draw

import (
	"image/color"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// Screen is what a picture is made for.
type Screen struct {
	Width  int // columns; 0 means 80
	Colour bool
}

const (
	usualWidth = 80
	leastWidth = 20
)

func (s Screen) width() int {
	if s.Width == 0 {
		return usualWidth
	}
	return max(s.Width, leastWidth)
}

func (s Screen) paint(text string, c color.Color) string {
	if !s.Colour {
		return text
	}
	return lipgloss.NewStyle().Foreground(c).Render(text)
}

// The colours of outcomes. They are among the 16 that each terminal's own palette defines.
var (
	good  color.Color = lipgloss.Green
	bad   color.Color = lipgloss.Red
	warn  color.Color = lipgloss.Yellow
	quiet color.Color = lipgloss.BrightBlack
	plain color.Color = lipgloss.Cyan
)

// Good, Bad, Warn and Quiet return a text in the colour of its meaning.
func (s Screen) Good(text string) string { return s.paint(text, good) }

// Bad returns a text in the colour of a failure.
func (s Screen) Bad(text string) string { return s.paint(text, bad) }

// Warn returns a text in the colour of a warning.
func (s Screen) Warn(text string) string { return s.paint(text, warn) }

// Quiet returns a text in the colour of what matters less.
func (s Screen) Quiet(text string) string { return s.paint(text, quiet) }

// Cut returns the text with at most the screen's columns, with an ellipsis if it is longer.
func (s Screen) Cut(text string) string { return ansi.Truncate(text, s.width(), "…") }

// Wrap breaks a text at blanks so that it fits the screen. All lines but the first are indented.
func (s Screen) Wrap(text string, indent int) string {
	var out strings.Builder
	used := 0
	for i, word := range strings.Split(text, " ") {
		n := ansi.StringWidth(word)
		switch {
		case i > 0 && used+1+n > s.width() && used > indent:
			out.WriteString("\n" + strings.Repeat(" ", indent))
			used = indent
		case i > 0:
			out.WriteString(" ")
			used++
		}
		out.WriteString(word)
		used += n
	}
	return out.String()
}

// wrap joins parts with blanks, and begins a new line where the next part does not fit.
func (s Screen) wrap(parts []string) string {
	var out strings.Builder
	used := 0
	for _, part := range parts {
		part = s.Cut(part)
		n := ansi.StringWidth(part)
		switch {
		case used == 0:
		case used+3+n > s.width():
			out.WriteString("\n")
			used = 0
		default:
			out.WriteString("   ")
			used += 3
		}
		out.WriteString(part)
		used += n
	}
	return out.String()
}

// Count writes a number with commas between its thousands.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

var levels = []rune("▁▂▃▄▅▆▇█")

// Spark draws each value as one column between 0 and the greatest value. A value of 0 has the lowest column.
func Spark(values []float64) string {
	var most float64
	for _, v := range values {
		most = max(most, v)
	}
	var line strings.Builder
	for _, v := range values {
		level := 0
		if most > 0 && v > 0 {
			level = min(int(v/most*float64(len(levels)-1)+0.5), len(levels)-1)
		}
		line.WriteRune(levels[level])
	}
	return line.String()
}

// bar draws a part of most as a bar of at most width columns, in steps of an eighth of a column. A part above 0 is never invisible.
func bar(part, most int64, width int) string {
	if part <= 0 || most <= 0 || width <= 0 {
		return ""
	}
	eighths := max(1, int(float64(part)/float64(most)*float64(width*8)+0.5))
	line := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		line += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return line
}

// Row is a line of a card.
type Row struct{ Name, Value string }

// Card draws rows in a frame, with a title in its upper edge. Values that are too long are cut.
func (s Screen) Card(title string, rows []Row) string {
	names := 0
	for _, r := range rows {
		names = max(names, ansi.StringWidth(r.Name))
	}
	lines, widest := make([]string, len(rows)), ansi.StringWidth(title)+3
	for i, r := range rows {
		line := s.Quiet(r.Name) + strings.Repeat(" ", names-ansi.StringWidth(r.Name)+2) + r.Value
		lines[i] = ansi.Truncate(line, s.width()-4, "…")
		widest = max(widest, ansi.StringWidth(lines[i]))
	}
	widest = min(widest, s.width()-4)
	title = ansi.Truncate(title, widest-2, "…")
	frame := lipgloss.RoundedBorder()
	var out strings.Builder
	out.WriteString(s.Quiet(frame.TopLeft+frame.Top+" ") + title + s.Quiet(" "+strings.Repeat(frame.Top, widest-ansi.StringWidth(title)-1)+frame.TopRight) + "\n")
	for _, line := range lines {
		out.WriteString(s.Quiet(frame.Left) + " " + line + strings.Repeat(" ", widest-ansi.StringWidth(line)) + " " + s.Quiet(frame.Right) + "\n")
	}
	out.WriteString(s.Quiet(frame.BottomLeft+strings.Repeat(frame.Bottom, widest+2)+frame.BottomRight) + "\n")
	return out.String()
}
