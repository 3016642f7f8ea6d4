package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

func (c commander) tick() *cobra.Command {
	return command.Group("tick", "List, replay and cancel ticks, and see what a tick carries",
		c.tickList(), c.tickGet(), c.tickSample(),
		c.tickAct("cancel", "Cancel a tick that has not ended", "cancel"),
		c.tickAct("replay", "Deliver a failed tick again", "replay"),
	)
}

// anyTickFields select ticks of all schedules.
var anyTickFields = slices.Concat([]command.Field{
	{Flag: "workflow", Value: "NAME", Help: "of this workflow", From: workflowNames},
	{Flag: "key", Value: "KEY", Help: "of the schedule with this key"},
	{Flag: "subject", Value: "SUBJECT", Help: "for this person or thing", From: subjectNames},
	{Flag: "schedule", Query: "schedule_id", Value: "ID", Help: "of the schedule with this id"},
	{Flag: "operation", Value: "ID", Help: "made by this operation, such as a backfill"},
	{Flag: "cause", Value: "CAUSE", Help: "schedule, manual, backfill, catch_up or buffered", Values: []string{"schedule", "manual", "backfill", "catch_up", "buffered"}},
}, tickFields)

func (c commander) tickList() *cobra.Command {
	return c.command(command.Spec{
		Use:   "list",
		Short: "List ticks, newest first",
		Example: `  carillon tick list --state failed --from -1d
  carillon tick list --workflow daily-digest --key user_123 -o wide
  carillon tick list --operation op_0a1b -o csv > backfill.csv`,
		List:   true,
		Fields: anyTickFields,
		Run:    func(ctx context.Context, s *command.Session) error { return s.List(ctx, "/v1/ticks", tickRow) },
	})
}

func (c commander) tickGet() *cobra.Command {
	return c.command(command.Spec{
		Use:     "get TICK",
		Short:   "Show one tick with its payload, its attempts and its result",
		Example: "  carillon tick get tick_0a1b\n  carillon tick get tick_0a1b --jq '.attempts[-1]'",
		Run: func(ctx context.Context, s *command.Session) error {
			return s.Show(ctx, api.Request{Path: api.Path("v1", "ticks", s.Args[0])}, tickCard)
		},
	})
}

func (c commander) tickAct(verb, short, below string) *cobra.Command {
	return c.command(command.Spec{
		Use:     verb + " TICK",
		Short:   short,
		Example: "  carillon tick " + verb + " tick_0a1b",
		Run: func(ctx context.Context, s *command.Session) error {
			return s.Show(ctx, api.Request{Method: "POST", Path: api.Path("v1", "ticks", s.Args[0], below)}, tickCard)
		},
	})
}

func (c commander) tickSample() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:     "sample WORKFLOW/KEY",
		Short:   "Show the tick that a schedule would send, or send a copy to a URL; nothing fires",
		Example: "  carillon tick sample daily-digest/user_123 --jq .body\n  carillon tick sample daily-digest/user_123 --to http://localhost:3000/ticks",
		Flags:   sampleFlags,
		Fields:  []command.Field{{Flag: "at", Kind: command.Moment, Value: "TIME", Help: "the time of the tick (default: the next one)"}},
	}, func(ctx context.Context, s *command.Session, t target) error {
		query, err := s.Query()
		if err != nil {
			return err
		}
		r := api.Request{Path: t.path("sample"), Query: query}
		if s.Given("to") {
			return sendSample(ctx, s, r)
		}
		return s.Show(ctx, r, output.Layout{
			Name: []string{"body.tick_id"},
			Columns: []output.Column{
				{Name: "tick", Path: "body.tick_id"}, {Name: "time", Path: "body.timestamp", Local: "body.local_time", Kind: output.Time},
				{Name: "payload", Path: "body.payload"}, {Name: "headers"}, {Name: "body"},
			},
		})
	})
}

// deadFields select dead letters by the query.
var deadFields = []command.Field{
	{Flag: "workflow", Value: "NAME", Help: "of this workflow", From: workflowNames},
	{Flag: "endpoint", Value: "NAME", Help: "sent to this endpoint", From: endpointNames},
	{Flag: "key", Value: "KEY", Help: "of schedules with this key"},
	{Flag: "from", Kind: command.Moment, Value: "TIME", Help: "from this time on"},
	{Flag: "to", Kind: command.Moment, Value: "TIME", Help: "before this time"},
}

func (c commander) deadLetter() *cobra.Command {
	return command.Group("dead-letter", "List, group and replay ticks that failed for good",
		c.command(command.Spec{
			Use:     "list",
			Short:   "List the ticks that failed for good, newest first",
			Example: "  carillon dead-letter list --workflow daily-digest\n  carillon dead-letter list --from -1d -o wide",
			List:    true,
			Fields:  deadFields,
			Run: func(ctx context.Context, s *command.Session) error {
				return s.List(ctx, "/v1/admin/dead-letters", tickRow)
			},
		}),
		c.command(command.Spec{
			Use:     "groups",
			Short:   "Count dead letters by workflow, endpoint and error",
			Example: "  carillon dead-letter groups --from -1d",
			Fields:  deadFields,
			Run: func(ctx context.Context, s *command.Session) error {
				query, err := s.Query()
				if err != nil {
					return err
				}
				return s.ShowItems(ctx, api.Request{Path: "/v1/admin/dead-letters/groups", Query: query}, "items", output.Layout{
					Name: []string{"sample_tick_id"},
					Columns: []output.Column{
						{Name: "workflow"}, {Name: "endpoint"}, {Name: "count", Kind: output.Count}, {Name: "error"},
						{Name: "first", Path: "first_at", Kind: output.Time, Wide: true}, {Name: "last", Path: "last_at", Kind: output.Time},
						{Name: "sample", Path: "sample_tick_id"},
					},
				})
			},
		}),
		c.deadReplay(),
	)
}

// replayFields select dead letters by the members of a filter.
func replayFields() []command.Field {
	fields := slices.Clone(deadFields)
	for i := range fields {
		fields[i].Pointer = "/filter/" + fields[i].Flag
	}
	return fields
}

var matchedCard = output.Layout{Name: []string{"matched"}, Columns: []output.Column{{Name: "matched", Kind: output.Count}, {Name: "changed", Kind: output.Count}, {Name: "sample", Wide: true}}}

func (c commander) deadReplay() *cobra.Command {
	return c.command(command.Spec{
		Use:   "replay",
		Short: "Deliver dead letters again",
		Long:  "Delivers the dead letters that the flags select again, as an operation. Without a selecting flag\nit is all of them.",
		Example: `  carillon dead-letter replay --workflow daily-digest --from -1d --dry-run
  carillon dead-letter replay --endpoint mailer --yes`,
		Danger: true,
		Fields: append(replayFields(), command.Field{Flag: "dry-run", Pointer: "/dry_run", Kind: command.Bool, Help: "only count them"}),
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := s.Body()
			if err != nil {
				return err
			}
			r := api.Request{Method: "POST", Path: "/v1/admin/dead-letters/replay", Body: body}
			if s.Text("dry-run") == "true" {
				return s.Show(ctx, r, matchedCard)
			}
			if !s.Yes() {
				count, err := matched(ctx, s, r)
				if err != nil {
					return err
				}
				if err := s.Confirm(ctx, "Deliver %s dead letters again?", count); err != nil {
					return err
				}
			}
			answer, err := s.API.Do(ctx, r)
			if err != nil {
				return err
			}
			return showOperation(ctx, s, answer.Body)
		},
	})
}

// matched returns how many things a request with a filter would change.
func matched(ctx context.Context, s *command.Session, r api.Request) (string, error) {
	o, err := output.Read(r.Body)
	if err != nil {
		return "", err
	}
	members, _ := o.Value().(map[string]any) // the body of flags is an object
	members["dry_run"] = true
	if r.Body, err = command.Encode(members); err != nil {
		return "", err
	}
	answer, err := s.API.Do(ctx, r)
	if err != nil {
		return "", err
	}
	counted, err := output.Read(answer.Body)
	return counted.At("matched").String(), err
}
