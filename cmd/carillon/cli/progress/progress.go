// Package progress shows on a terminal how far long work is. On anything but a terminal it writes nothing.
package progress

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Bar is a progress bar. The nil Bar is one that shows nothing.
type Bar struct {
	bar  *progressbar.ProgressBar
	what string
}

// Options say how a bar looks.
type Options struct {
	What  string // what is done, such as "import"
	Unit  string // what is counted, such as "lines"
	Total int64  // -1 if it is unknown: the bar is then a spinner
	Width int    // columns of the terminal
}

// every is how often a bar is drawn at most.
const every = 100 * time.Millisecond

// New returns a bar on w. If terminal is false it returns nil.
func New(w io.Writer, terminal bool, o Options) *Bar {
	if !terminal {
		return nil
	}
	bar := progressbar.NewOptions64(o.Total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(o.What),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(o.Unit),
		progressbar.OptionThrottle(every),
		progressbar.OptionSetWidth(min(30, max(8, o.Width-60))),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionClearOnFinish(),
	)
	return &Bar{bar, o.What}
}

// Set moves the bar to n of the total, and describes what happens now.
func (b *Bar) Set(n int64, what string) {
	if b == nil {
		return
	}
	_ = b.bar.Set64(n) // a bar that cannot be drawn is no reason to end the work
	if what != b.what {
		b.what = what
		b.bar.Describe(what) // it draws the bar at once
	}
}

// SetOf is Set with a total that may have become known or have changed.
func (b *Bar) SetOf(n, total int64, what string) {
	if b == nil {
		return
	}
	if total != b.bar.GetMax64() {
		b.bar.ChangeMax64(total)
	}
	b.Set(n, what)
}

// Add moves the bar by n.
func (b *Bar) Add(n int64) {
	if b != nil {
		_ = b.bar.Add64(n) // as above
	}
}

// Aside removes the bar, calls print, which writes lines above it, and draws the bar again.
func (b *Bar) Aside(print func()) {
	if b != nil {
		_ = b.bar.Clear()
	}
	print()
	if b != nil {
		_ = b.bar.RenderBlank()
	}
}

// Close removes the bar.
func (b *Bar) Close() {
	if b != nil {
		_ = b.bar.Clear()
		_ = b.bar.Exit()
	}
}
