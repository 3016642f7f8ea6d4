package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// explanation is an answer of the server, with the schedule that it is about.
type explanation struct {
	of       target
	answer   output.Object
	schedule output.Object // null if it was deleted
	zone     string
}

// drawExplanation prints an explanation for a person: the outcome, the steps, the policy that decided, the ticks before and after, and
// what the user can do.
func drawExplanation(ctx context.Context, s *command.Session, t target, answer json.RawMessage) error {
	e := explanation{of: t, zone: "UTC"}
	var err error
	if e.answer, err = output.Read(answer); err != nil {
		return err
	}
	_, e.schedule, err = fetch(ctx, s, api.Request{Path: t.path()})
	if err != nil && !api.HasStatus(err, 404) {
		return err
	}
	if zone := e.schedule.At("timezone_in_force").String(); zone != "" {
		e.zone = zone
	}
	outcome := e.answer.At("outcome").String()
	fmt.Fprintln(s.Out.W, screen(s).Wrap(outcomeColour(screen(s), outcome)+"  "+e.answer.At("detail").String(), 2))
	for _, row := range e.rows(ctx, s) {
		fmt.Fprintln(s.Out.W, screen(s).Wrap(fmt.Sprintf("  %-9s %s", row.Name, row.Value), 12))
	}
	if hint := e.hint(ctx, s); hint != "" {
		s.Note("next: %s", hint)
	}
	return nil
}

// outcomeColour paints an outcome of a tick or of an explanation.
func outcomeColour(screen draw.Screen, outcome string) string {
	switch outcome {
	case "fired", "succeeded", "sent", "will_fire", "running":
		return screen.Good(outcome)
	case "failed", "missed", "cancelled":
		return screen.Bad(outcome)
	case "not_due", "before_created", "after_end", "nothing_due", "no_schedule", "unknown":
		return screen.Quiet(outcome)
	}
	return screen.Warn(outcome)
}

func (e explanation) rows(ctx context.Context, s *command.Session) (rows []draw.Row) {
	if e.schedule.Null() {
		rows = append(rows, draw.Row{Name: "schedule", Value: "it was deleted"})
	} else {
		spec := fmt.Sprintf("%q, version %s", e.schedule.At("reading"), e.schedule.At("version"))
		spec += " since " + moment(ctx, s, e.zone, e.schedule.At("updated_at").String()) + " (" + e.schedule.At("updated_by").String() + ")"
		rows = append(rows, draw.Row{Name: "spec", Value: spec})
	}
	for _, step := range e.answer.At("steps").Items() {
		if what := step.At("what").String(); (what == "handed_out" || what == "attempt" || what == "tick") && step.At("detail").String() != e.answer.At("detail").String() {
			value := moment(ctx, s, e.zone, step.At("at").String()) + "   " + outcomeColour(screen(s), step.At("outcome").String())
			rows = append(rows, draw.Row{Name: strings.ReplaceAll(what, "handed_out", "handed"), Value: value + "  " + step.At("detail").String()})
		}
	}
	if policy := e.policy(); policy != "" {
		rows = append(rows, draw.Row{Name: "policy", Value: policy})
	}
	if previous := e.answer.At("previous").String(); previous != "" {
		rows = append(rows, draw.Row{Name: "before", Value: moment(ctx, s, e.zone, previous) + "   " + e.became(ctx, s, previous)})
	}
	if next := e.answer.At("next").String(); next != "" {
		value := moment(ctx, s, e.zone, next)
		if at, err := time.Parse(time.RFC3339, next); err == nil && at.Before(s.Env.Now()) {
			value += "   " + e.became(ctx, s, next)
		}
		rows = append(rows, draw.Row{Name: "after", Value: value})
	}
	return rows
}

// became describes the tick of a nominal time: its state, its reason and, if it succeeded, its lateness. It returns "" if the server
// has no such tick.
func (e explanation) became(ctx context.Context, s *command.Session, nominal string) string {
	at, err := time.Parse(time.RFC3339, nominal)
	if err != nil {
		return ""
	}
	_, o, err := fetch(ctx, s, api.Request{Path: e.of.path("ticks"), Query: query("from", nominal, "to", at.Add(time.Second).UTC().Format(time.RFC3339), "limit", "1")})
	if err != nil || len(o.At("items").Items()) == 0 {
		return "" // a picture without it is still right
	}
	tick := o.At("items").Items()[0]
	text := outcomeColour(screen(s), tick.At("state").String())
	if reason := tick.At("reason").String(); reason != "" {
		text += " (" + reason + ")"
	}
	if late := tick.At("lateness_ms").String(); tick.At("state").String() == "succeeded" {
		text += ", handed out " + late + " ms after its time"
	}
	return text
}

// policy returns the policy that decided about the tick, and what it came to.
func (e explanation) policy() string {
	member := func(path, usual string) string {
		if value := e.schedule.At(path).String(); value != "" {
			return value
		}
		return usual
	}
	reason := e.answer.At("tick.reason").String()
	switch outcome := e.answer.At("outcome").String(); {
	case e.schedule.Null():
		return ""
	case outcome == "dst_gap":
		return "gap: " + member("spec.dst.gap", "auto") + "  → no tick"
	case e.answer.At("tick.dst").String() == "gap":
		return "gap: " + member("spec.dst.gap", "auto") + "  → moved"
	case strings.HasPrefix(e.answer.At("tick.dst").String(), "overlap"):
		return "repeat: " + member("spec.dst.overlap", "auto") + "  → the " + strings.TrimPrefix(e.answer.At("tick.dst").String(), "overlap_")
	case reason == "overlap", reason == "superseded":
		return "overlap: " + member("policy.overlap", "skip") + "  → " + outcome
	case reason == "expired":
		return "max_lateness: " + member("policy.max_lateness", "24h") + ", on_expired: " + member("policy.on_expired", "skip") + "  → " + outcome
	case outcome == "missed", reason == "missed":
		return "missed: " + member("policy.missed", "last") + "  → " + outcome
	case outcome == "excluded":
		return "except-then: " + member("spec.exclude.then", "drop") + "  → no tick"
	}
	return ""
}

// hint returns what the user can do about the outcome; "" if there is nothing.
func (e explanation) hint(ctx context.Context, s *command.Session) string {
	if e.schedule.Null() {
		return ""
	}
	name := e.of.String()
	switch e.answer.At("outcome").String() {
	case "dst_gap":
		hint := "carillon schedule edit " + name + " --gap shift_forward"
		if at, err := time.Parse(time.RFC3339, e.answer.At("at").String()); err == nil {
			hint += "   (then it fires at " + located(ctx, s, e.zone, at).Format("15:04") + ")"
		}
		return hint
	case "paused":
		return "carillon schedule resume " + name
	case "held":
		return "carillon workflow release " + e.of.workflow
	case "failed":
		return "carillon tick replay " + e.answer.At("tick.tick_id").String()
	case "missed":
		return "carillon schedule backfill " + name
	case "will_fire":
		return "carillon tick sample " + name + "   (shows what will be sent)"
	case "skipped":
		if e.answer.At("tick.reason").String() == "overlap" {
			return "carillon schedule edit " + name + " --overlap buffer_one   (the tick waits for the one that runs)"
		}
	}
	return ""
}
