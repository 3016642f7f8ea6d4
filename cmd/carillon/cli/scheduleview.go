package cli

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

func (c commander) scheduleUpcoming() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:   "upcoming WORKFLOW/KEY",
		Short: "Show the coming ticks of a schedule",
		Example: `  carillon schedule upcoming daily-digest/user_123 --count 20
  carillon schedule upcoming daily-digest/user_123 --months 2
  carillon schedule upcoming daily-digest/user_123 --ics > digest.ics`,
		Fields: []command.Field{
			{Flag: "count", Kind: command.Number, Value: "N", Help: "how many, at most 1000 (default 5)"},
			{Flag: "from", Kind: command.Moment, Value: "TIME", Help: "after this time instead of now"},
		},
		Flags: func(f *pflag.FlagSet) {
			f.Bool("ics", false, "print a calendar file (RFC 5545) instead")
			f.Int("months", 0, "on a terminal: draw so many months, with the ticks that fired too")
		},
	}, func(ctx context.Context, s *command.Session, t target) error {
		query, err := s.Query()
		if err != nil {
			return err
		}
		if s.Given("months") && pictured(s) {
			return drawSchedule(ctx, s, t)
		}
		r := api.Request{Path: t.path("upcoming"), Query: query}
		if s.Given("ics") {
			r.Header = map[string]string{"Accept": "text/calendar"}
			answer, err := s.API.Do(ctx, r)
			if err != nil {
				return err
			}
			_, err = s.Env.Stdout.Write(answer.Body)
			return err
		}
		if s.Out.JSON() {
			return s.Show(ctx, r, upcomingRow)
		}
		return s.ShowItems(ctx, r, "ticks", upcomingRow)
	})
}

// tickFields select ticks in a list.
var tickFields = []command.Field{
	{Flag: "state", Value: "STATE", Help: "scheduled, running, succeeded, failed, cancelled or skipped", Values: []string{"scheduled", "running", "succeeded", "failed", "cancelled", "skipped"}},
	{Flag: "from", Kind: command.Moment, Value: "TIME", Help: "from this time on"},
	{Flag: "to", Kind: command.Moment, Value: "TIME", Help: "before this time"},
}

func (c commander) scheduleHistory() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:   "history WORKFLOW/KEY",
		Short: "List the ticks of a schedule, newest first",
		Example: `  carillon schedule history daily-digest/user_123
  carillon schedule history daily-digest/user_123 --state failed --from -7d -o wide`,
		List:   true,
		Fields: tickFields,
	}, func(ctx context.Context, s *command.Session, t target) error {
		return s.List(ctx, t.path("ticks"), tickRow)
	})
}

func (c commander) scheduleBackfill() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:   "backfill WORKFLOW/KEY",
		Short: "Fire the ticks of a past time",
		Long:  "Fires a tick for every nominal time from --from on and before --to. It is an operation: carillon\noperation wait follows it, and carillon tick list --operation finds its ticks.",
		Example: `  carillon schedule backfill daily-digest/user_123 --from -7d --to now --dry-run
  carillon schedule backfill daily-digest/user_123 --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z`,
		Fields: []command.Field{
			{Flag: "from", Pointer: "/from", Kind: command.Moment, Value: "TIME", Help: "the first time"},
			{Flag: "to", Pointer: "/to", Kind: command.Moment, Value: "TIME", Help: "the first time that is too late"},
			{Flag: "overlap", Pointer: "/overlap", Value: "POLICY", Help: "buffer_all (one after another) or allow_all (together)", Values: []string{"buffer_all", "allow_all"}},
			{Flag: "dry-run", Pointer: "/dry_run", Kind: command.Bool, Help: "only count the ticks"},
		},
		Flags: preconditions,
	}, func(ctx context.Context, s *command.Session, t target) error {
		body, err := s.Body()
		if err != nil {
			return err
		}
		answer, err := s.API.Do(ctx, api.Request{Method: "POST", Path: t.path("backfill"), Header: precondition(s), Body: body})
		if err != nil {
			return err
		}
		if answer.Status == 200 {
			return s.Out.One(ctx, answer.Body, output.Layout{Columns: []output.Column{
				{Name: "count", Kind: output.Count}, {Name: "existing", Kind: output.Count}, {Name: "first", Kind: output.Time}, {Name: "last", Kind: output.Time},
			}})
		}
		return showOperation(ctx, s, answer.Body)
	})
}

// showOperation prints an operation that has begun, and how to follow it.
func showOperation(ctx context.Context, s *command.Session, text json.RawMessage) error {
	o, err := output.Read(text)
	if err != nil {
		return err
	}
	if inner := o.At("operation"); !inner.Null() {
		o = inner
	}
	s.Note("next: carillon operation wait %s", o.At("id"))
	return s.Out.One(ctx, text, operationCard)
}

// explainCard is an explanation where no text can be drawn.
var explainCard = output.Layout{
	Name: []string{"outcome"},
	Columns: []output.Column{
		{Name: "outcome"}, {Name: "detail"}, {Name: "at", Kind: output.Time}, {Name: "tick", Path: "tick.tick_id"},
		{Name: "previous", Kind: output.Time}, {Name: "next", Kind: output.Time}, {Name: "steps", Wide: true},
	},
}

func (c commander) scheduleExplain() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:   "explain WORKFLOW/KEY",
		Short: "Say why a schedule fired at a time, or why not",
		Example: `  carillon schedule explain daily-digest/user_123                       # now
  carillon schedule explain daily-digest/user_123 --at "2026-03-29 02:30"
  carillon schedule explain daily-digest/user_123 --at "tomorrow 08:00"`,
		Fields: []command.Field{{Flag: "at", Kind: command.Moment, Wall: true, Value: "TIME", Help: "the time; without a zone it is one of the schedule's (default: now)"}},
	}, func(ctx context.Context, s *command.Session, t target) error {
		query, err := s.Query()
		if err != nil {
			return err
		}
		if !query.Has("at") {
			at, err := s.Moment("at", "now")
			if err != nil {
				return err
			}
			query = url.Values{"at": {at}}
		}
		answer, err := s.API.Do(ctx, api.Request{Path: t.path("explain"), Query: query})
		if err != nil {
			return err
		}
		if !pictured(s) {
			return s.Out.One(ctx, answer.Body, explainCard)
		}
		return drawExplanation(ctx, s, t, answer.Body)
	})
}
