package cli

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var calendars = resource{
	noun: "calendar", argument: "CALENDAR", path: "/v1/calendars", name: "name", sample: "us-holidays", complete: calendarNames,
	row: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "days", Show: days}, {Name: "updated", Path: "updated_at", Kind: output.Time}, {Name: "by", Path: "updated_by"},
	}},
	card: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "days", Show: days}, {Name: "dates"}, {Name: "updated", Path: "updated_at", Kind: output.Time}, {Name: "by", Path: "updated_by"},
	}},
}

func days(o output.Object) string { return command.Plural(len(o.At("dates").Items()), "day") }

func (c commander) calendar() *cobra.Command {
	return command.Group("calendar", "Keep days without ticks, that schedules share",
		c.list(calendars, nil, "  carillon calendar list"),
		c.get(calendars),
		c.calendarPut(),
		c.delete(calendars, "A calendar that a schedule uses is refused."),
	)
}

func (c commander) calendarPut() *cobra.Command {
	var ics string
	var dryRun bool
	return c.command(command.Spec{
		Use:   "put CALENDAR",
		Short: "Create a calendar, or replace it",
		Long:  "Creates a calendar of days without ticks, or replaces it. The schedules that use it are retimed.",
		Example: `  carillon calendar put us-holidays --date 2026-12-25 --date 2027-01-01
  carillon calendar put us-holidays --ics holidays.ics --dry-run
  carillon calendar put us-holidays -f calendar.yaml`,
		File:   true,
		Fields: []command.Field{{Flag: "date", Pointer: "/dates", Kind: command.Texts, Value: "DATE", Help: "a day, such as 2026-12-25; repeatable"}},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&ics, "ics", "", "a calendar `FILE` (RFC 5545) with the days; - is standard input")
			f.BoolVar(&dryRun, "dry-run", false, "only show the days that would be stored")
			preconditions(f)
		},
		Args: []command.Completion{calendarNames},
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := s.Body()
			if err != nil {
				return err
			}
			if ics != "" {
				if body, err = withICS(s, body, ics); err != nil {
					return err
				}
			}
			request := api.Request{Method: "PUT", Path: calendars.at(s), Header: precondition(s), Body: body}
			if dryRun {
				request.Query = url.Values{"dry_run": {"true"}}
			}
			answer, err := s.API.Do(ctx, request)
			if err != nil {
				return err
			}
			if dryRun {
				return s.Out.One(ctx, answer.Body, calendars.card)
			}
			return stored1(ctx, s, calendars, answer)
		},
	})
}

// withICS adds the content of a calendar file to a body.
func withICS(s *command.Session, body []byte, path string) ([]byte, error) {
	text, err := s.ReadInput(path)
	if err != nil {
		return nil, err
	}
	o, err := output.Read(body)
	if err != nil {
		return nil, err
	}
	members, _ := o.Value().(map[string]any)
	if members == nil {
		members = map[string]any{}
	}
	members["ics"] = string(text)
	return command.Encode(members)
}
