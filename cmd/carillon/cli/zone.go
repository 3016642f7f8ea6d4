package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var zoneRow = output.Layout{
	Name: []string{"timezone"},
	Columns: []output.Column{
		{Name: "zone", Path: "timezone"}, {Name: "offset"}, {Name: "abbreviation"},
		{Name: "changes", Path: "next_change.at", Kind: output.Time}, {Name: "to", Path: "next_change.offset"},
	},
}

var transitionRow = output.Layout{
	Name:    []string{"at"},
	Columns: []output.Column{{Name: "at", Kind: output.Time}, {Name: "before"}, {Name: "after"}, {Name: "abbreviation"}},
}

func (c commander) zone() *cobra.Command {
	return command.Group("zone", "Show time zones and their clock changes",
		c.command(command.Spec{
			Use:     "list",
			Short:   "List the zones in force, with their offset and next change",
			Example: "  carillon zone list\n  carillon zone list -o name | grep Europe",
			Run: func(ctx context.Context, s *command.Session) error {
				return s.ShowItems(ctx, api.Request{Path: "/v1/zones"}, "items", zoneRow)
			},
		}),
		c.command(command.Spec{
			Use:     "get ZONE",
			Short:   "List the clock changes of a zone",
			Example: "  carillon zone get America/New_York\n  carillon zone get Europe/Paris --from 2026-01-01T00:00:00Z --to 2027-01-01T00:00:00Z",
			Args:    []command.Completion{zoneNames},
			Fields: []command.Field{
				{Flag: "from", Kind: command.Moment, Value: "TIME", Help: "from this time on (default now)"},
				{Flag: "to", Kind: command.Moment, Value: "TIME", Help: "before this time (default: five years later)"},
			},
			Run: func(ctx context.Context, s *command.Session) error {
				query, err := s.Query()
				if err != nil {
					return err
				}
				r := api.Request{Path: api.Path("v1", "zones", s.Args[0]), Query: query}
				if s.Out.JSON() {
					return s.Show(ctx, r, transitionRow)
				}
				return s.ShowItems(ctx, r, "transitions", transitionRow)
			},
		}),
		c.clockChanges("carillon zone dst"),
	)
}

var changesRow = output.Layout{
	Name: []string{"at"},
	Columns: []output.Column{
		{Name: "at", Kind: output.Time}, {Name: "kind"}, {Name: "from", Path: "from_local"}, {Name: "to", Path: "to_local"},
		{Name: "schedules", Kind: output.Count}, {Name: "effects", Show: effects}, {Name: "zones", Path: "timezones"},
	},
}

// effects returns what a clock change does to schedules, with their number.
func effects(o output.Object) string {
	var texts []string
	for _, e := range o.At("effects").Items() {
		texts = append(texts, e.At("count").String()+" "+e.At("effect").String())
	}
	return strings.Join(texts, ", ")
}

// clockChanges is `zone dst`, and `admin dst` too.
func (c commander) clockChanges(path string) *cobra.Command {
	return c.command(command.Spec{
		Use:     "dst",
		Short:   "Show the coming clock changes, and what they do to your schedules",
		Example: "  " + path + "\n  " + path + " --workflow daily-digest --to +180d",
		Fields: []command.Field{
			{Flag: "from", Kind: command.Moment, Value: "TIME", Help: "from this time on (default now)"},
			{Flag: "to", Kind: command.Moment, Value: "TIME", Help: "before this time"},
			{Flag: "workflow", Value: "NAME", Help: "only schedules of this workflow", From: workflowNames},
		},
		Run: func(ctx context.Context, s *command.Session) error {
			query, err := s.Query()
			if err != nil {
				return err
			}
			r := api.Request{Path: "/v1/admin/dst", Query: query}
			if s.Out.JSON() {
				return s.Show(ctx, r, changesRow)
			}
			return s.ShowItems(ctx, r, "changes", changesRow)
		},
	})
}

// zoneNames completes the zones that the server knows.
func zoneNames(ctx context.Context, s *command.Session, _ string) []string {
	answer, err := s.API.Do(ctx, api.Request{Path: "/v1/zones"})
	if err != nil {
		return nil
	}
	o, err := output.Read(answer.Body)
	if err != nil {
		return nil
	}
	var names []string
	for _, zone := range o.At("items").Items() {
		names = append(names, zone.At("timezone").String())
	}
	return names
}
