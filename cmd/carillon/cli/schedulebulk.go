package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// bulkFields are the flags of an action on many schedules: which ones, and how.
var bulkFields = []command.Field{
	{Flag: "all", Pointer: "/filter/all", Kind: command.Bool, Help: "all schedules of the tenant"},
	{Flag: "workflow", Pointer: "/filter/workflow", Value: "NAME", Help: "of this workflow", From: workflowNames},
	{Flag: "status", Pointer: "/filter/status", Value: "STATUS", Help: "active, paused, completed or quarantined", Values: []string{"active", "paused", "completed", "quarantined"}},
	{Flag: "prefix", Pointer: "/filter/key_prefix", Value: "TEXT", Help: "with a key that begins so"},
	{Flag: "contains", Pointer: "/filter/key_contains", Value: "TEXT", Help: "with a key that contains this"},
	{Flag: "subject", Pointer: "/filter/subject", Value: "SUBJECT", Help: "for this person or thing", From: subjectNames},
	{Flag: "label", Pointer: "/filter/label", Value: "NAME:VALUE", Help: "with this label"},
	{Flag: "timezone", Pointer: "/filter/timezone", Value: "ZONE", Help: "in this zone", From: zoneNames},
	{Flag: "calendar", Pointer: "/filter/calendar", Value: "NAME", Help: "that leave out this calendar", From: calendarNames},
	{Flag: "failing", Pointer: "/filter/failing", Kind: command.Bool, Help: "whose last tick failed"},
	{Flag: "due-before", Pointer: "/filter/due_before", Kind: command.Moment, Value: "TIME", Help: "due before then"},
	{Flag: "operation", Pointer: "/filter/operation", Value: "ID", Help: "that this operation paused: resume undoes it exactly"},
	{Flag: "until", Pointer: "/until", Kind: command.Moment, Value: "TIME", Help: "of pause: resume then"},
	{Flag: "count", Pointer: "/count", Kind: command.Number, Value: "N", Help: "of skip: how many coming ticks"},
	{Flag: "patch", Pointer: "/patch", Kind: command.JSON, Value: "JSON", Help: "of patch: a merge patch of each schedule"},
	{Flag: "note", Pointer: "/note", Value: "TEXT", Help: "why, for people"},
	{Flag: "dry-run", Pointer: "/dry_run", Kind: command.Bool, Help: "only count, and show a sample"},
}

func (c commander) scheduleBulk() *cobra.Command {
	return c.command(command.Spec{
		Use:   "bulk ACTION [WORKFLOW/KEY...]",
		Short: "Pause, resume, delete, retime, skip, patch or trigger many schedules",
		Long: `Does an action to many schedules: those that are named, or those that the flags select. ACTION
is pause, resume, delete, retime, skip, patch or trigger. It is an operation: carillon
operation wait follows it.`,
		Example: `  carillon schedule bulk pause --workflow daily-digest --label plan:free --dry-run
  carillon schedule bulk pause --workflow daily-digest --note "mail is down" --yes
  carillon schedule bulk resume --operation op_0a1b                # undoes that pause exactly
  carillon schedule bulk patch --label plan:free --patch '{"delivery": {"priority": 4}}'
  carillon schedule bulk trigger daily-digest/user_1 daily-digest/user_2`,
		Fields: bulkFields,
		Danger: true,
		Args:   []command.Completion{actions},
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := bulkBody(s)
			if err != nil {
				return err
			}
			if !s.Given("dry-run") && !s.YesGiven() {
				if err := confirmBulk(ctx, s, body); err != nil {
					return err
				}
			}
			answer, err := s.API.Do(ctx, bulkRequest(body))
			if err != nil {
				return err
			}
			if answer.Status == 200 {
				return s.Out.One(ctx, answer.Body, output.Layout{Columns: []output.Column{
					{Name: "matched", Kind: output.Count}, {Name: "changed", Kind: output.Count}, {Name: "sample", Show: func(o output.Object) string { return sampled(o, 20) }},
				}})
			}
			return showOperation(ctx, s, answer.Body)
		},
	})
}

func actions(context.Context, *command.Session, string) []string {
	return []string{"pause", "resume", "delete", "retime", "skip", "patch", "trigger"}
}

// sampled returns the names of the first schedules in a sample.
func sampled(o output.Object, most int) string {
	var text string
	for i, one := range o.At("sample").Items() {
		if i == most {
			break
		}
		if i > 0 {
			text += ", "
		}
		text += scheduleOf(one)
	}
	return text
}

// bulkBody returns the request: the action, and the filter or the keys.
func bulkBody(s *command.Session) (map[string]json.RawMessage, error) {
	text, err := s.Body()
	if err != nil {
		return nil, err
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, err
	}
	if body["action"], err = json.Marshal(s.Args[0]); err != nil || len(s.Args) == 1 {
		return body, err
	}
	var keys []string
	for _, name := range s.Args[1:] {
		t, err := targetOf(name)
		if err != nil {
			return nil, err
		}
		keys = append(keys, t.String())
	}
	body["keys"], err = json.Marshal(keys)
	return body, err
}

func bulkRequest(body map[string]json.RawMessage) api.Request {
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("encode what was decoded: %v", err))
	}
	return api.Request{Method: "POST", Path: "/v1/schedules/actions", Body: text}
}

// confirmBulk asks whether to act on so many schedules.
func confirmBulk(ctx context.Context, s *command.Session, body map[string]json.RawMessage) error {
	trial := map[string]json.RawMessage{"dry_run": json.RawMessage("true")}
	for name, value := range body {
		trial[name] = value
	}
	_, o, err := fetch(ctx, s, bulkRequest(trial))
	if err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscan(o.At("changed").String(), &n); err != nil {
		return err
	}
	return s.Confirm(ctx, "This will %s %s, such as %s.", s.Args[0], command.Plural(n, "schedule"), sampled(o, 3))
}
