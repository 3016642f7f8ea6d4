package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// topRow is one look at a tenant where no screen can be drawn.
var topRow = output.Layout{
	Name: []string{"at"},
	Columns: []output.Column{
		{Name: "at", Kind: output.Time}, {Name: "firing", Show: firing}, {Name: "active", Path: "schedules.active", Kind: output.Count},
		{Name: "due_minute", Path: "due.minute", Kind: output.Count}, {Name: "backlog", Show: backlog}, {Name: "pushed", Path: "running.pushed", Kind: output.Count},
		{Name: "leased", Path: "running.leased", Kind: output.Count}, {Name: "p50", Path: "lateness.p50_ms", Kind: output.Millis},
		{Name: "p99", Path: "lateness.p99_ms", Kind: output.Millis}, {Name: "dead_letters", Path: "failures.dead_letters", Kind: output.Count},
		{Name: "failed_last_hour", Path: "failures.last_hour", Kind: output.Count},
	},
}

// backlog returns how many ticks are due and not handed out.
func backlog(o output.Object) string {
	return fmt.Sprint(number(o.At("backlog.unswept")) + number(o.At("backlog.unopened")) + number(o.At("backlog.ready")))
}

// top is a run of `carillon top`.
type top struct {
	every time.Duration
	count int // 0: no end
}

func (c commander) top() *cobra.Command {
	var t top
	return c.command(command.Spec{
		Use:   "top",
		Short: "Watch the tenant: what is due, waits, runs, is late and fails",
		Long: `Shows the overview of the tenant and the ticks of the last hour, until Ctrl-C. A terminal shows a
screen that is drawn again; a pipe gets one line each time, and -o ndjson one object.`,
		Example: `  carillon top
  carillon top --every 10s -o ndjson >> overview.ndjson
  carillon top --count 1 --columns at,backlog,p99`,
		Flags: func(f *pflag.FlagSet) {
			f.DurationVar(&t.every, "every", 2*time.Second, "look again after this `LONG`, 1s or more")
			f.IntVar(&t.count, "count", 0, "end after so many looks; 0 is never")
		},
		Check: func(*command.Session) error {
			if t.every < time.Second || t.count < 0 {
				return exit.Misused("--every is 1s or more, and --count 0 or more")
			}
			return nil
		},
		Run: func(ctx context.Context, s *command.Session) error {
			s.Out.Live = true
			var err error
			if pictured(s) {
				err = t.draw(ctx, s)
			} else {
				err = s.Out.List(ctx, t.looks(ctx, s), topRow)
			}
			if err == nil {
				err = ctx.Err()
			}
			return err
		},
	})
}

// looks yields an overview at each interval. It stops without an error when ctx ends, so that the printed JSON is complete.
func (t top) looks(ctx context.Context, s *command.Session) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for n := 1; ; n++ {
			answer, err := s.API.Do(ctx, api.Request{Path: "/v1/admin/overview"})
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(answer.Body, nil) || n == t.count || sleep(ctx, t.every) != nil {
				return
			}
		}
	}
}

// Sequences of terminals: the cursor goes to the first column of the first line; the rest of the line or of the screen is cleared.
const (
	toTop     = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

// draw shows each look on the whole screen. A new frame is written over the old one, so that nothing flickers.
func (t top) draw(ctx context.Context, s *command.Session) error {
	before := toTop + clearRest
	for text, err := range t.looks(ctx, s) {
		if err != nil {
			return err
		}
		o, err := output.Read(text)
		if err != nil {
			return err
		}
		_, series, err := fetch(ctx, s, api.Request{Path: "/v1/admin/series"})
		if err != nil {
			return err
		}
		frame := t.frame(ctx, s, o, series)
		if _, err := io.WriteString(s.Env.Stdout, before+strings.ReplaceAll(frame, "\n", clearLine+"\n")+clearRest); err != nil {
			return err
		}
		before = toTop
	}
	return nil
}

// frame returns the screen of one look.
func (t top) frame(ctx context.Context, s *command.Session, o, series output.Object) string {
	screen := screen(s)
	var b strings.Builder
	line := func(name, text string) { b.WriteString(screen.Cut(fmt.Sprintf("%-10s %s", name, text)) + "\n") }
	line("carillon", screen.Quiet(fmt.Sprintf("%s at %s, every %s; Ctrl-C ends it", s.Server.URL, moment(ctx, s, "UTC", o.At("at").String()), t.every)))
	if o.At("firing.halted_at").Null() {
		line("firing", screen.Good("yes"))
	} else {
		line("firing", screen.Bad(firing(o)))
	}
	line("schedules", counts(o.At("schedules"), "total", "active", "paused", "completed", "quarantined"))
	if due := o.At("due"); due.Null() {
		line("due", screen.Quiet("not counted yet"))
	} else {
		line("due", fmt.Sprintf("%s in a minute   %s in an hour   %s in a day", countOf(due, "minute"), countOf(due, "hour"), countOf(due, "day")))
	}
	line("backlog", counts(o.At("backlog"), "unswept", "unopened", "ready", "held", "buffered"))
	line("running", counts(o.At("running"), "pushed", "leased"))
	if late := o.At("lateness"); late.At("p50_ms").Null() {
		line("late", screen.Quiet("no tick in the last hour"))
	} else {
		millis := func(name string) string { return output.Milliseconds(number(late.At(name))) }
		line("late", fmt.Sprintf("p50 %s   p99 %s   at most %s", millis("p50_ms"), millis("p99_ms"), millis("max_ms")))
	}
	failures := counts(o.At("failures"), "last_hour", "retrying", "dead_letters")
	if number(o.At("failures.last_hour")) > 0 {
		failures = screen.Bad(failures)
	}
	line("failures", failures)
	for _, member := range []string{"throttling", "unmet", "held"} {
		for i, item := range o.At(member).Items() {
			if i == mostTroubles {
				line("", screen.Quiet("… and more: carillon admin overview"))
				break
			}
			line(member, screen.Warn(trouble(item)))
		}
	}
	return b.String() + "\n" + seriesText(ctx, s, series)
}

// mostTroubles is how many throttles, unmet expectations and held workflows the screen shows of each.
const mostTroubles = 3

// trouble returns a throttle, an unmet expectation or a held workflow in a few words.
func trouble(item output.Object) string {
	parts := []string{item.At("workflow").String(), item.At("by").String(), item.At("event").String()}
	if n := number(item.At("waiting")); n > 0 {
		parts = append(parts, draw.Count(n)+" waiting")
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "  ")
}

func countOf(o output.Object, name string) string { return draw.Count(number(o.At(name))) }

// counts returns some counts of an object, each with its name.
func counts(o output.Object, names ...string) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = countOf(o, name) + " " + strings.ReplaceAll(name, "_", " ")
	}
	return strings.Join(parts, "   ")
}
