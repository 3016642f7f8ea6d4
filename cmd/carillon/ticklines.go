package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/carillonhq/carillon/dispatch/open"
)

// tickLines writes a line for each tick that fires. It shows many ticks at once as a number, and the caller that reports ticks never waits
// for the terminal.
type tickLines struct {
	out      io.Writer
	format   format
	coloured bool
	fired    chan []open.Fired
}

// linesPerSecond is the number of ticks a second that are shown one by one.
const linesPerSecond = 20

func newTickLines(out io.Writer, f format, coloured bool) *tickLines {
	return &tickLines{out, f, coloured, make(chan []open.Fired, 4096)}
}

// add reports fired ticks. It never blocks: ticks that do not fit are not shown.
func (t *tickLines) add(fired []open.Fired) {
	select {
	case t.fired <- fired:
	default:
	}
}

// write shows ticks until ctx ends.
func (t *tickLines) write(ctx context.Context) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	shown, unshown := 0, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-second.C:
			if unshown > 0 && t.format == "text" {
				fmt.Fprintf(t.out, "  … and %d more\n", unshown)
			}
			shown, unshown = 0, 0
		case fired := <-t.fired:
			for _, f := range fired {
				if t.format == "text" && shown >= linesPerSecond {
					unshown++
					continue
				}
				shown++
				t.line(f)
			}
		}
	}
}

func (t *tickLines) line(f open.Fired) {
	late := f.FiredAt.Sub(f.Timestamp)
	if t.format == "json" {
		line, _ := json.Marshal(map[string]any{
			"time": f.FiredAt.UTC(), "msg": "tick", "workflow": f.Workflow, "key": f.Key,
			"timestamp": f.Timestamp.UTC(), "lateness_ms": late.Milliseconds(),
		}) // these values always have a JSON form
		fmt.Fprintf(t.out, "%s\n", line)
		return
	}
	lateness := fmt.Sprintf("%d ms late", late.Milliseconds())
	if t.coloured && late > time.Second {
		lateness = "\x1b[33m" + lateness + "\x1b[0m"
	}
	fmt.Fprintf(t.out, "  %s  %-16s  %-24s  %s\n", f.FiredAt.UTC().Format("15:04:05.000"), f.Workflow, printable(f.Key), lateness)
}

// printable returns a key that cannot control the terminal. Keys have no control characters, but can have other characters to which a
// terminal reacts; such a key is quoted.
func printable(key string) string {
	quoted := fmt.Sprintf("%q", key)
	if quoted == `"`+key+`"` {
		return key
	}
	return quoted
}
