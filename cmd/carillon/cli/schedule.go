package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

func (c commander) schedule() *cobra.Command {
	return command.Group("schedule", "Put, list, change and explain schedules",
		c.schedulePut(), c.scheduleGet(), c.scheduleList(), c.scheduleEdit(), c.scheduleDelete(),
		c.schedulePause(), c.scheduleResume(), c.scheduleTrigger(), c.scheduleSkip(), c.scheduleUnskip(), c.scheduleReschedule(),
		c.scheduleUpcoming(), c.scheduleHistory(), c.scheduleExplain(), c.scheduleBackfill(),
		c.scheduleRevisions(), c.scheduleDiff(), c.scheduleRevert(),
	)
}

// scheduleRow is a schedule in a list.
var scheduleRow = output.Layout{
	Name: []string{"workflow", "key"},
	Columns: []output.Column{
		{Name: "workflow"},
		{Name: "key"},
		{Name: "status"},
		{Name: "next", Path: "next_at", Local: "next_local", Kind: output.Time},
		{Name: "zone", Path: "timezone_in_force"},
		{Name: "reading"},
		{Name: "last_outcome", Wide: true},
		{Name: "subject", Wide: true},
		{Name: "last", Path: "last_at", Kind: output.Time, Wide: true},
		{Name: "fired", Path: "stats.fired", Kind: output.Count, Wide: true},
		{Name: "failed", Path: "stats.failed", Kind: output.Count, Wide: true},
		{Name: "version", Wide: true},
		{Name: "id", Wide: true},
	},
}

// scheduleCard is one schedule.
var scheduleCard = output.Layout{
	Name: []string{"workflow", "key"},
	Columns: []output.Column{
		{Name: "schedule", Show: func(o output.Object) string { return o.At("workflow").String() + "/" + o.At("key").String() }},
		{Name: "status"},
		{Name: "status_note"},
		{Name: "paused_until", Kind: output.Time},
		{Name: "reading"},
		{Name: "zone", Path: "timezone_in_force"},
		{Name: "next", Path: "next_at", Local: "next_local", Kind: output.Time},
		{Name: "last", Path: "last_at", Kind: output.Time},
		{Name: "subject"},
		{Name: "payload"},
		{Name: "labels"},
		{Name: "note"},
		{Name: "ticks", Path: "stats"},
		{Name: "warnings", Show: warnings},
		{Name: "version"},
		{Name: "updated", Path: "updated_at", Kind: output.Time},
		{Name: "updated_by"},
		{Name: "id"},
		{Name: "spec", Wide: true},
		{Name: "policy", Wide: true},
		{Name: "delivery", Wide: true},
		{Name: "inherited", Wide: true},
		{Name: "created_at", Kind: output.Time, Wide: true},
		{Name: "tzdata", Wide: true},
	},
}

// warnings joins the texts of an object's warnings.
func warnings(o output.Object) string {
	var text string
	for i, w := range o.At("warnings").Items() {
		if i > 0 {
			text += "; "
		}
		text += w.At("detail").String()
	}
	return text
}

func (c commander) scheduleGet() *cobra.Command {
	return c.command(command.Spec{
		Use:   "get WORKFLOW/KEY",
		Short: "Show one schedule",
		Long:  "Shows one schedule: when it fires next, what it carries, and how its ticks ended.\nWithout /KEY the key is global. An id such as sch_… works too.",
		Example: `  carillon schedule get daily-digest/user_123
  carillon schedule get cleanup                                # the key is global
  carillon schedule get daily-digest/user_123 -o yaml
  carillon schedule get daily-digest/user_123 --jq .next_at`,
		Args: []command.Completion{scheduleNames},
		Run: func(ctx context.Context, s *command.Session) error {
			t, err := targetOf(s.Args[0])
			if err != nil {
				return err
			}
			return s.Show(ctx, api.Request{Path: t.path()}, scheduleCard)
		},
	})
}

func (c commander) scheduleList() *cobra.Command {
	return c.command(command.Spec{
		Use:   "list",
		Short: "List schedules",
		Long:  "Lists schedules, by workflow and key. At most one of --key, --prefix, --contains, --subject,\n--label, --timezone, --failing and --due-before selects; --due-before lists in due order.",
		Example: `  carillon schedule list
  carillon schedule list --workflow daily-digest --status paused
  carillon schedule list --subject user_123 -o wide
  carillon schedule list --due-before +1h --limit 20
  carillon schedule list -o name | wc -l`,
		List:   true,
		Fields: filterFields,
		Run: func(ctx context.Context, s *command.Session) error {
			query, err := s.Query()
			if err != nil {
				return err
			}
			if !query.Has("fields") && !s.Out.JSON() {
				query.Set("fields", "summary")
			}
			return s.ListBy(ctx, "/v1/schedules", query, scheduleRow)
		},
	})
}

// filterFields select schedules in a list.
var filterFields = []command.Field{
	{Flag: "workflow", Value: "NAME", Help: "of this workflow", From: workflowNames},
	{Flag: "status", Value: "STATUS", Help: "active, paused, completed or quarantined", Values: []string{"active", "paused", "completed", "quarantined"}},
	{Flag: "key", Value: "KEY", Help: "with exactly this key"},
	{Flag: "prefix", Query: "key_prefix", Value: "TEXT", Help: "with a key that begins so"},
	{Flag: "contains", Query: "key_contains", Value: "TEXT", Help: "with a key that contains this"},
	{Flag: "subject", Value: "SUBJECT", Help: "for this person or thing", From: subjectNames},
	{Flag: "label", Value: "NAME:VALUE", Help: "with this label"},
	{Flag: "timezone", Value: "ZONE", Help: "in this zone", From: zoneNames},
	{Flag: "calendar", Value: "NAME", Help: "that leave out this calendar", From: calendarNames},
	{Flag: "failing", Kind: command.Bool, Help: "whose last tick failed"},
	{Flag: "due-before", Kind: command.Moment, Value: "TIME", Help: "due before then, in due order"},
	{Flag: "fields", Value: "full|summary", Help: "full has the payloads too (default: summary in tables)", Values: []string{"full", "summary"}},
}

func (c commander) schedulePut() *cobra.Command {
	return c.command(command.Spec{
		Use:   "put WORKFLOW/KEY",
		Short: "Create a schedule, or replace it",
		Long: `Creates a schedule, or replaces the whole schedule of this name. The flags are its members;
with -f a file is the body, and flags replace members of it.`,
		Example: `  carillon schedule put daily-digest/user_123 --cron "0 8 * * 1-5" --timezone America/New_York
  carillon schedule put cleanup --every 1h --payload '{"keep": 7}'
  carillon schedule put trial/user_9 --at "2026-12-24T18:00:00" --timezone @subject
  carillon schedule put daily-digest/user_123 -f digest.yaml --note "from the wiki"`,
		File:   true,
		Fields: wholeSchedule,
		Flags:  preconditions,
		Args:   []command.Completion{scheduleNames},
		Run: func(ctx context.Context, s *command.Session) error {
			t, err := targetOf(s.Args[0])
			if err != nil {
				return err
			}
			body, err := s.Body()
			if err != nil {
				return err
			}
			answer, err := s.API.Do(ctx, api.Request{Method: "PUT", Path: t.path(), Header: precondition(s), Body: body})
			if err != nil {
				return err
			}
			verb := "stored"
			if answer.Status == 201 {
				verb = "created"
			}
			s.Note("%s %s", verb, t)
			return s.Out.One(ctx, answer.Body, scheduleCard)
		},
	})
}
