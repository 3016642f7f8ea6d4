package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var subjects = resource{
	noun: "subject", argument: "SUBJECT", path: "/v1/subjects", name: "subject", sample: "user_123", complete: subjectNames,
	row: output.Layout{Columns: []output.Column{
		{Name: "subject"}, {Name: "timezone"}, {Name: "quiet_hours"}, {Name: "labels"}, {Name: "updated", Path: "updated_at", Kind: output.Time, Wide: true},
	}},
	card: output.Layout{Columns: []output.Column{
		{Name: "subject"}, {Name: "timezone"}, {Name: "quiet_hours"}, {Name: "labels"}, {Name: "version"},
		{Name: "operation", Path: "operation.id"}, {Name: "updated", Path: "updated_at", Kind: output.Time}, {Name: "by", Path: "updated_by"},
	}},
}

func (c commander) subject() *cobra.Command {
	return command.Group("subject", "Keep the zone and quiet hours of people, explain and erase",
		c.list(subjects, []command.Field{{Flag: "prefix", Query: "subject_prefix", Value: "TEXT", Help: "that begin so"}},
			"  carillon subject list\n  carillon subject list --prefix user_1 -o csv"),
		c.get(subjects),
		c.put(subjects, command.Spec{
			Short: "Create the profile of a subject, or replace it",
			Long:  "Creates the profile of a subject, or replaces it. Its schedules whose zone is @subject are\nretimed.",
			Example: `  carillon subject put user_123 --timezone Europe/Paris
  carillon subject put user_123 --timezone Asia/Tokyo --quiet '{"from": "22:00", "to": "07:00"}' --label plan=pro`,
			Fields: []command.Field{
				{Flag: "timezone", Pointer: "/timezone", Value: "ZONE", Help: "where the subject is, such as Europe/Paris", From: zoneNames},
				{Flag: "quiet", Pointer: "/quiet_hours", Kind: command.JSON, Value: "JSON", Help: "quiet hours: {\"from\", \"to\", \"then\"?, \"days\"?} or a list of them"},
				{Flag: "label", Pointer: "/labels", Kind: command.Members, Value: "NAME=VALUE", Help: "a label; repeatable"},
			},
		}),
		c.subjectOverview(), c.subjectExplain(), c.subjectCancel(), c.subjectRename(), c.subjectErase(),
	)
}

var overviewCard = output.Layout{
	Name: []string{"subject"},
	Columns: []output.Column{
		{Name: "subject"}, {Name: "zone", Path: "timezone_in_force"},
		{Name: "schedules", Show: func(o output.Object) string {
			return each(o.At("schedules"), func(i output.Object) string { return scheduleOf(i) + " " + i.At("status").String() })
		}},
		{Name: "upcoming", Show: func(o output.Object) string {
			return each(o.At("upcoming"), func(i output.Object) string { return i.At("local_time").String() + " " + scheduleOf(i) })
		}},
		{Name: "recent", Show: func(o output.Object) string {
			return each(o.At("recent"), func(i output.Object) string {
				return i.At("local_time").String() + " " + scheduleOf(i) + " " + i.At("state").String()
			})
		}},
	},
}

// each joins a text for each item of an array.
func each(list output.Object, text func(output.Object) string) string {
	var texts []string
	for _, item := range list.Items() {
		texts = append(texts, text(item))
	}
	return strings.Join(texts, "; ")
}

func (c commander) subjectOverview() *cobra.Command {
	return c.command(command.Spec{
		Use:     "overview SUBJECT",
		Short:   "Show the schedules, the coming and the last ticks of a subject",
		Example: "  carillon subject overview user_123\n  carillon subject overview user_123 --jq '.upcoming[0]'",
		Args:    []command.Completion{subjectNames},
		Run: func(ctx context.Context, s *command.Session) error {
			r := api.Request{Path: subjects.at(s, "overview")}
			if pictured(s) {
				return drawOverview(ctx, s, r)
			}
			return s.Show(ctx, r, overviewCard)
		},
	})
}

var verdictRow = output.Layout{
	Name: []string{"workflow"},
	Columns: []output.Column{
		{Name: "workflow"}, {Name: "verdict"}, {Name: "detail"},
		{Name: "planned", Show: func(o output.Object) string {
			return each(o.At("planned"), func(i output.Object) string { return i.At("local_time").String() + " " + i.At("outcome").String() })
		}},
	},
}

func (c commander) subjectExplain() *cobra.Command {
	return c.command(command.Spec{
		Use:     "explain SUBJECT",
		Short:   "Say what a subject got on a day, and why",
		Example: "  carillon subject explain user_123 --on 2026-11-21",
		Fields:  []command.Field{{Flag: "on", Value: "DATE", Help: "the day in the subject's zone (default today, in UTC)"}},
		Args:    []command.Completion{subjectNames},
		Run: func(ctx context.Context, s *command.Session) error {
			query, err := s.Query()
			if err != nil {
				return err
			}
			if !query.Has("on") {
				query = url.Values{"on": {s.Env.Now().UTC().Format("2006-01-02")}}
			}
			r := api.Request{Path: subjects.at(s, "explain"), Query: query}
			switch {
			case s.Out.JSON():
				return s.Show(ctx, r, verdictRow)
			case pictured(s):
				return drawDay(ctx, s, r)
			}
			return s.ShowItems(ctx, r, "workflows", verdictRow)
		},
	})
}

func (c commander) subjectCancel() *cobra.Command {
	return c.command(command.Spec{
		Use:   "cancel SUBJECT",
		Short: "Delete the schedules of a subject, and cancel its ticks",
		Example: `  carillon subject cancel user_123 --yes
  carillon subject cancel user_123 --workflow daily-digest`,
		Danger: true,
		Fields: []command.Field{
			{Flag: "workflow", Pointer: "/workflow", Value: "NAME", Help: "only of this workflow", From: workflowNames},
			{Flag: "label", Pointer: "/label", Value: "NAME:VALUE", Help: "only with this label"},
		},
		Args: []command.Completion{subjectNames},
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := s.Body()
			if err != nil {
				return err
			}
			if err := s.Confirm(ctx, "Delete the schedules of 1 subject, %s, and cancel its ticks?", s.Args[0]); err != nil {
				return err
			}
			answer, err := s.API.Do(ctx, api.Request{Method: "POST", Path: subjects.at(s, "cancel"), Body: body})
			if err != nil {
				return err
			}
			if answer.Status == 202 {
				return showOperation(ctx, s, answer.Body)
			}
			return s.Out.One(ctx, answer.Body, output.Layout{Columns: []output.Column{{Name: "schedules", Kind: output.Count}, {Name: "ticks", Kind: output.Count}}})
		},
	})
}

func (c commander) subjectRename() *cobra.Command {
	return c.act(subjects, command.Spec{
		Use:     "rename SUBJECT",
		Short:   "Move the schedules and the history of a subject to another name",
		Example: "  carillon subject rename user_123 --to user_456",
		Fields:  []command.Field{{Flag: "to", Pointer: "/to", Value: "SUBJECT", Help: "its new name"}},
	}, "rename", output.Layout{Name: []string{"subject"}, Columns: []output.Column{{Name: "subject"}, {Name: "schedules", Kind: output.Count}, {Name: "profile"}}})
}

func (c commander) subjectErase() *cobra.Command {
	return c.command(command.Spec{
		Use:     "erase SUBJECT",
		Short:   "Erase all stored data of a subject, and print the receipt",
		Long:    "Erases all stored data of a subject: its profile, schedules, history and ticks. It cannot be\nundone. The receipt has no name, only a keyed hash.",
		Example: "  carillon subject erase user_123 --confirm user_123 -o json > receipt.json",
		Confirm: "SUBJECT",
		Flags:   preconditions,
		Args:    []command.Completion{subjectNames},
		Run: func(ctx context.Context, s *command.Session) error {
			name := s.Args[0]
			if name == "" {
				return exit.Misused("the name of the subject is empty")
			}
			if err := s.ConfirmName(ctx, name, "All data of 1 subject, %s, will be erased.", name); err != nil {
				return err
			}
			return s.Show(ctx, api.Request{Method: "DELETE", Path: subjects.at(s), Header: precondition(s)}, output.Layout{
				Name: []string{"subject_hash"},
				Columns: []output.Column{
					{Name: "subject_hash"}, {Name: "erased", Path: "erased_at", Kind: output.Time}, {Name: "by", Path: "erased_by"}, {Name: "counts"},
				},
			})
		},
	})
}
