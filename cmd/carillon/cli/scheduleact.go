package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// onSchedule returns a command whose first argument is a schedule.
func (c commander) onSchedule(spec command.Spec, do func(ctx context.Context, s *command.Session, t target) error) *cobra.Command {
	spec.Args = []command.Completion{scheduleNames}
	spec.Run = func(ctx context.Context, s *command.Session) error {
		t, err := targetOf(s.Args[0])
		if err != nil {
			return err
		}
		return do(ctx, s, t)
	}
	return c.command(spec)
}

// post returns a command that posts the fields of its flags to a path below the schedule, and prints the answer.
func (c commander) post(spec command.Spec, below, done string, l output.Layout) *cobra.Command {
	spec.Flags = preconditions
	return c.onSchedule(spec, func(ctx context.Context, s *command.Session, t target) error {
		body, err := s.Body()
		if err != nil {
			return err
		}
		answer, err := s.API.Do(ctx, api.Request{Method: "POST", Path: t.path(below), Header: precondition(s), Body: body})
		if err != nil {
			return err
		}
		s.Note("%s %s", done, t)
		return s.Out.One(ctx, answer.Body, l)
	})
}

func (c commander) schedulePause() *cobra.Command {
	return c.post(command.Spec{
		Use:   "pause WORKFLOW/KEY",
		Short: "Stop a schedule from firing",
		Example: `  carillon schedule pause daily-digest/user_123
  carillon schedule pause daily-digest/user_123 --until "2027-01-07T08:00:00" --note "on holiday"`,
		Fields: []command.Field{
			{Flag: "until", Pointer: "/until", Kind: command.Moment, Value: "TIME", Help: "resume then; without it, when you resume it"},
			{Flag: "note", Pointer: "/note", Value: "TEXT", Help: "why, for people"},
		},
	}, "pause", "paused", scheduleCard)
}

func (c commander) scheduleResume() *cobra.Command {
	return c.post(command.Spec{
		Use:   "resume WORKFLOW/KEY",
		Short: "Let a paused schedule fire again, from now on",
		Example: `  carillon schedule resume daily-digest/user_123
  carillon schedule resume daily-digest/user_123 --fire-once`,
		Fields: []command.Field{{Flag: "fire-once", Pointer: "/fire_once", Kind: command.Bool, Help: "also fire one tick for the time of the pause"}},
	}, "resume", "resumed", scheduleCard)
}

func (c commander) scheduleTrigger() *cobra.Command {
	return c.post(command.Spec{
		Use:   "trigger WORKFLOW/KEY",
		Short: "Fire one tick by hand, now or later",
		Long:  "Fires one tick by hand. The timing of the schedule does not change.",
		Example: `  carillon schedule trigger daily-digest/user_123
  carillon schedule trigger daily-digest/user_123 --in 10m --payload '{"test": true}'`,
		Fields: []command.Field{
			{Flag: "payload", Pointer: "/payload", Kind: command.JSON, Value: "JSON", Help: "instead of the schedule's; @FILE reads a file"},
			{Flag: "at", Pointer: "/at", Kind: command.Moment, Value: "TIME", Help: "fire then"},
			{Flag: "in", Pointer: "/in", Value: "DURATION", Help: "fire after this time"},
		},
	}, "trigger", "triggered", tickCard)
}

func (c commander) scheduleSkip() *cobra.Command {
	return c.post(command.Spec{
		Use:   "skip WORKFLOW/KEY",
		Short: "Skip coming ticks",
		Example: `  carillon schedule skip daily-digest/user_123                # the next one
  carillon schedule skip daily-digest/user_123 --count 5
  carillon schedule skip daily-digest/user_123 --at 2026-12-24T13:00:00Z`,
		Fields: []command.Field{
			{Flag: "count", Pointer: "/count", Kind: command.Number, Value: "N", Help: "the next so many (default 1)"},
			{Flag: "at", Pointer: "/at", Kind: command.Moments, Value: "TIME", Help: "the tick of this time; repeatable"},
		},
	}, "skip", "will skip ticks of", scheduleCard)
}

func (c commander) scheduleReschedule() *cobra.Command {
	return c.post(command.Spec{
		Use:     "reschedule WORKFLOW/KEY",
		Short:   "Move one coming tick to another time",
		Example: `  carillon schedule reschedule daily-digest/user_123 --at 2026-12-24T13:00:00Z --to 2026-12-24T16:00:00Z`,
		Fields: []command.Field{
			{Flag: "at", Pointer: "/at", Kind: command.Moment, Value: "TIME", Help: "the time of the coming tick"},
			{Flag: "to", Pointer: "/to", Kind: command.Moment, Value: "TIME", Help: "its new time"},
		},
	}, "reschedule", "moved a tick of", scheduleCard)
}

func (c commander) scheduleUnskip() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:     "unskip WORKFLOW/KEY",
		Short:   "Undo skip: the coming ticks fire again",
		Example: "  carillon schedule unskip daily-digest/user_123",
		Flags:   preconditions,
	}, func(ctx context.Context, s *command.Session, t target) error {
		return s.Show(ctx, api.Request{Method: "DELETE", Path: t.path("skip"), Header: precondition(s)}, scheduleCard)
	})
}

func (c commander) scheduleDelete() *cobra.Command {
	return c.command(command.Spec{
		Use:   "delete WORKFLOW/KEY...",
		Short: "Delete schedules",
		Long:  "Deletes schedules. Their ticks that wait or run go on. To delete many by a filter, use\ncarillon schedule bulk.",
		Example: `  carillon schedule delete daily-digest/user_123
  carillon schedule delete trial/user_9 trial/user_10 --yes`,
		Danger: true,
		Flags:  preconditions,
		Args:   []command.Completion{scheduleNames, scheduleNames, scheduleNames},
		Run: func(ctx context.Context, s *command.Session) error {
			targets := make([]target, len(s.Args))
			for i, text := range s.Args {
				var err error
				if targets[i], err = targetOf(text); err != nil {
					return err
				}
			}
			if err := s.Confirm(ctx, "Delete %s: %s?", command.Plural(len(targets), "schedule"), strings.Join(s.Args, ", ")); err != nil {
				return err
			}
			for _, t := range targets {
				if _, err := s.API.Do(ctx, api.Request{Method: "DELETE", Path: t.path(), Header: precondition(s)}); err != nil {
					return err
				}
				if err := s.Done(ctx, t.members("deleted"), "deleted %s", t); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
