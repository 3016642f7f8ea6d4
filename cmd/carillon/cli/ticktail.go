package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/events"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// tailRow is a line of the live tail where no text can be drawn.
var tailRow = output.Layout{
	Name: []string{"tick_id"},
	Columns: []output.Column{
		{Name: "kind"}, {Name: "schedule", Show: scheduleOf}, {Name: "time", Path: "timestamp", Local: "local_time", Kind: output.Time},
		{Name: "state"}, {Name: "reason"}, {Name: "late", Path: "lateness_ms", Kind: output.Millis}, {Name: "took", Path: "took_ms", Kind: output.Millis},
		{Name: "tick", Path: "tick_id"}, {Name: "local", Path: "local_time", Wide: true}, {Name: "subject", Wide: true},
	},
}

// tailFields select the ticks that are shown live.
var tailFields = []command.Field{
	{Flag: "workflow", Value: "NAME", Help: "of this workflow", From: workflowNames},
	{Flag: "key", Value: "KEY", Help: "of the schedule with this key"},
	{Flag: "subject", Value: "SUBJECT", Help: "for this person or thing", From: subjectNames},
	{Flag: "schedule", Query: "schedule_id", Value: "ID", Help: "of the schedule with this id"},
	{Flag: "operation", Value: "ID", Help: "made by this operation, such as a backfill"},
	{Flag: "cause", Value: "CAUSE", Help: "schedule, manual, backfill, catch_up or buffered", Values: []string{"schedule", "manual", "backfill", "catch_up", "buffered"}},
	{Flag: "state", Value: "STATE", Help: "in this state when they are shown", Values: []string{"scheduled", "running", "succeeded", "failed", "cancelled", "skipped"}},
}

func (c commander) tickTail() *cobra.Command {
	return c.command(command.Spec{
		Use:   "tail",
		Short: "Show ticks live, as they fire and end",
		Long: `Shows ticks as they fire and end, until Ctrl-C. The server shows at most 50 a second, and counts
the others. If the connection breaks, the command connects again and shows what it missed.
With -o ndjson each tick is one line of JSON.`,
		Example: `  carillon tick tail --workflow daily-digest
  carillon tick tail --state failed -o ndjson | jq .tick_id
  carillon tick tail --count 1 --json     # wait for one tick`,
		Fields: tailFields,
		Flags: func(f *pflag.FlagSet) {
			f.String("kind", "", "show only `KIND`: fired or ended")
			f.Int("count", 0, "end after so many ticks; 0 is never")
		},
		Run: func(ctx context.Context, s *command.Session) error {
			t, err := newTailing(s)
			if err != nil {
				return err
			}
			s.Out.Live = true
			ticks := t.ticks(ctx, s)
			if pictured(s) {
				err = t.draw(ctx, s, ticks)
			} else {
				err = s.Out.List(ctx, ticks, tailRow)
			}
			if err == nil && ctx.Err() != nil {
				return context.Canceled
			}
			return err
		},
	})
}

// tailing is what a user wants to see of the tail.
type tailing struct {
	query url.Values
	kind  string // fired or ended; empty: both
	count int    // 0: no end
}

func newTailing(s *command.Session) (t tailing, err error) {
	if t.query, err = s.Query(); err != nil {
		return t, err
	}
	flags := s.Command.Flags()
	if t.kind, err = flags.GetString("kind"); err != nil || t.kind != "" && t.kind != "fired" && t.kind != "ended" {
		return t, exit.Misused("--kind is fired or ended")
	}
	if t.count, err = flags.GetInt("count"); err != nil || t.count < 0 {
		return t, exit.Misused("--count is 0 or more")
	}
	return t, nil
}

// ticks returns the ticks of the tail as items. What the server does not show is noted on standard error.
func (t tailing) ticks(ctx context.Context, s *command.Session) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		shown := 0
		connected := func() {
			if s.Out.Terminal {
				s.Note("%s", screen(s).Quiet("waiting for ticks; Ctrl-C ends it"))
			}
		}
		for e, err := range follow(ctx, s, t.query, connected) {
			if err != nil {
				yield(nil, err)
				return
			}
			if e.Name != eventTick {
				noteUnshown(s, e)
				continue
			}
			if t.kind != "" && !strings.Contains(e.Data, `"kind":"`+t.kind+`"`) {
				continue
			}
			if !yield(json.RawMessage(e.Data), nil) {
				return
			}
			if shown++; shown == t.count {
				return
			}
		}
	}
}

// noteUnshown notes how many ticks of a second have no line, and what was missed between two connections.
func noteUnshown(s *command.Session, e events.Event) {
	o, err := output.Read([]byte(e.Data))
	if err != nil {
		return
	}
	switch e.Name {
	case eventSecond:
		if n := number(o.At("unshown")); n > 0 {
			s.Note("%s", screen(s).Quiet("   … and "+draw.Count(n)+" more this second"))
		}
	case eventGap:
		s.Note("ticks from %s to %s are not shown: carillon tick list has them", o.At("from"), o.At("to"))
	}
}

// draw prints a line for each tick.
func (t tailing) draw(ctx context.Context, s *command.Session, ticks iter.Seq2[json.RawMessage, error]) error {
	for item, err := range ticks {
		if err != nil {
			return err
		}
		o, err := output.Read(item)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(s.Out.W, screen(s).Cut(tailLine(ctx, s, o))+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// tailLine returns a tick in one line: when it fired or ended, which schedule, and what became of it.
func tailLine(ctx context.Context, s *command.Session, o output.Object) string {
	at, late := clockOf(ctx, s, o), number(o.At("lateness_ms"))
	screen := screen(s)
	var what string
	switch state := o.At("state").String(); {
	case o.At("kind").String() == "fired":
		what = screen.Quiet("○ fired, ") + lateText(late)
	case state == "succeeded":
		what = screen.Good("●") + " succeeded in " + output.Milliseconds(number(o.At("took_ms")))
	case state == "failed":
		what = screen.Bad("✕ failed") + " after " + output.Milliseconds(number(o.At("took_ms")))
	default:
		what = screen.Warn("◌ " + state)
		if reason := o.At("reason").String(); reason != "" {
			what += " (" + reason + ")"
		}
	}
	return fmt.Sprintf("%s  %s  %s   %s", at, scheduleOf(o), what, screen.Quiet(o.At("tick_id").String()))
}

func lateText(ms int64) string {
	if ms == 0 {
		return "on time"
	}
	return output.Milliseconds(ms) + " late"
}

// clockOf returns when a tick fired or ended, in its own zone or in that of --clock.
func clockOf(ctx context.Context, s *command.Session, o output.Object) string {
	nominal, err := time.Parse(time.RFC3339Nano, o.At("local_time").String())
	if err != nil {
		return o.At("timestamp").String()
	}
	at := nominal.Add(time.Duration(number(o.At("lateness_ms"))+number(o.At("took_ms"))) * time.Millisecond)
	if name := s.Out.Clock.Name; name != "" && name != "schedule" {
		at = located(ctx, s, "", at)
	}
	if zone, _ := at.Zone(); zone != "" {
		return at.Format("15:04:05.000 MST")
	}
	return at.Format("15:04:05.000 -07:00")
}
