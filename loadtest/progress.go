package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far a scenario is: with bars on a terminal, else with lines.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time
}

func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	return &progress{out: out, terminal: ok && term.IsTerminal(int(f.Fd())), began: time.Now()}
}

// say writes one line.
func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// steps returns a function to call after each of n steps, from any goroutine. Without a terminal it shows nothing.
func (p *progress) steps(n int, what string) (step func()) {
	if !p.terminal {
		p.say("%s: %d", what, n)
		return func() {}
	}
	bar := progressbar.NewOptions(n, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(p.out) }))
	return func() { _ = bar.Add(1) } // a bar that cannot be drawn stops nothing
}
