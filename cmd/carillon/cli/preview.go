package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// previewFields are the flags of a preview: those of a spec, and where it begins and ends.
var previewFields = append([]command.Field{
	{Flag: "start", Pointer: "/from", Kind: command.Moment, Value: "TIME", Help: "show ticks after this (default: now)"},
	{Flag: "stop", Pointer: "/until", Kind: command.Moment, Value: "TIME", Help: "show ticks before this"},
	{Flag: "count", Pointer: "/count", Kind: command.Number, Value: "N", Help: "how many ticks to list, at most 1000 (default: 5)"},
	{Flag: "workflow", Pointer: "/workflow", Value: "NAME", Help: "with --key: the schedule that decides what H is", From: workflowNames},
	{Flag: "key", Pointer: "/key", Value: "KEY", Help: "the key of that schedule"},
	{Flag: "subject", Pointer: "/subject", Value: "SUBJECT", Help: "whose zone @subject is", From: subjectNames},
}, specFields...)

func (c commander) preview() *cobra.Command {
	return c.command(command.Spec{
		Use:   "preview [SPEC]",
		Short: "Show when a spec would fire, without storing it",
		Long: `Shows when a spec would fire, without storing it: on a terminal as a grid of months. SPEC is a
cron line, a recurrence rule, a duration such as 15m, or JSON; flags add to it. -f reads a
spec, or a schedule that has one.`,
		Example: `  carillon preview "0 8 * * 1-5" --timezone America/New_York
  carillon preview "30 2 * * *" --timezone Europe/Paris --start "2027-03-01 00:00 UTC" --months 1
  carillon preview 15m --count 20 -o csv
  carillon preview --cron "0 9 * * *" --except 2026-12-25
  carillon preview -f digest.yaml --json`,
		File:   true,
		Fields: previewFields,
		Flags:  monthsFlag,
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := previewBody(s)
			if err != nil {
				return err
			}
			if !pictured(s) {
				return showPreview(ctx, s, body)
			}
			return drawPreview(ctx, s, body)
		},
	})
}

// previewBody returns the request: the members of the file, of the flags and of SPEC.
func previewBody(s *command.Session) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if len(s.Args) > 0 {
		if text := strings.TrimSpace(s.Args[0]); !strings.HasPrefix(text, "{") {
			if err := s.Give(flagOf(text), strings.ReplaceAll(text, `\n`, "\n")); err != nil {
				return nil, err
			}
		} else if err := json.Unmarshal([]byte(text), &members); err != nil {
			return nil, exit.Misused("SPEC is no JSON: %w", err)
		}
	}
	text, err := s.Body()
	if err != nil {
		return nil, err
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, exit.Misused("the body is not a JSON object: %w", err)
	}
	if body, err = withSpec(body, members); err == nil && body["spec"] == nil {
		err = exit.Misused("%s needs SPEC, a flag such as --cron, or -f", s.Command.CommandPath())
	}
	return body, err
}

var (
	durationText = regexp.MustCompile(`^([0-9]+[wdhms])+$`)
	ruleText     = regexp.MustCompile(`(?i)^(DTSTART|RRULE|FREQ)`)
)

// flagOf returns the flag for a spec in text: a recurrence rule, a duration or a cron line.
func flagOf(text string) string {
	switch {
	case durationText.MatchString(text):
		return "every"
	case ruleText.MatchString(text):
		return "rrule"
	}
	return "cron"
}

// The members of a preview, and those of a spec, which a file may have instead.
var (
	previewMembers = []string{"workflow", "key", "subject", "from", "until", "count"}
	specMembers    = []string{"timezone", "cron", "day_match", "calendars", "intervals", "rrule", "at", "relative", "exclude",
		"start_at", "end_at", "max_ticks", "jitter", "dst"}
)

// withSpec returns what a preview takes of a body: a file may be a spec alone, or a whole schedule. more are further members of the spec.
func withSpec(body, more map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	taken, spec := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for _, name := range previewMembers {
		if body[name] != nil {
			taken[name] = body[name]
		}
	}
	for _, name := range specMembers {
		if body[name] != nil {
			spec[name] = body[name]
		}
	}
	if body["spec"] != nil {
		if err := json.Unmarshal(body["spec"], &spec); err != nil {
			return nil, exit.Misused("the spec is not a JSON object: %w", err)
		}
	}
	maps.Copy(spec, more)
	if len(spec) == 0 {
		return taken, nil
	}
	text, err := json.Marshal(spec)
	taken["spec"] = text
	return taken, err
}

func preview(ctx context.Context, s *command.Session, body map[string]json.RawMessage) (json.RawMessage, output.Object, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, output.Object{}, err
	}
	return fetch(ctx, s, api.Request{Method: "POST", Path: "/v1/schedules/preview", Body: text})
}

// showPreview prints the ticks as rows, or the answer itself.
func showPreview(ctx context.Context, s *command.Session, body map[string]json.RawMessage) error {
	raw, o, err := preview(ctx, s, body)
	if err != nil {
		return err
	}
	return showTicks(ctx, s, raw, o)
}

// showTicks prints an answer with coming ticks in the chosen format. Its reading and its warnings are no data of a table.
func showTicks(ctx context.Context, s *command.Session, raw json.RawMessage, o output.Object) error {
	if s.Out.JSON() {
		return s.Out.One(ctx, raw, upcomingRow)
	}
	noteWarnings(s, o)
	var ticks struct{ Ticks []json.RawMessage }
	if err := json.Unmarshal(raw, &ticks); err != nil {
		return err
	}
	if len(ticks.Ticks) == 0 {
		s.Note("no tick comes")
	}
	return s.Out.List(ctx, command.Each(ticks.Ticks), upcomingRow)
}

func noteWarnings(s *command.Session, o output.Object) {
	for _, w := range o.At("warnings").Items() {
		s.Note("warning: %s (%s)", w.At("detail"), w.At("code"))
	}
}

// mostPreviewed is how many ticks one request returns.
const mostPreviewed = 1000

// drawPreview draws the months, and the first ticks.
func drawPreview(ctx context.Context, s *command.Session, body map[string]json.RawMessage) error {
	months, err := monthsOf(s)
	if err != nil {
		return err
	}
	listed := 5
	if count := body["count"]; count != nil {
		if err := json.Unmarshal(count, &listed); err != nil {
			return exit.Misused("--count: %w", err)
		}
	}
	from := s.Env.Now()
	if given := body["from"]; given != nil {
		var text string
		if err := json.Unmarshal(given, &text); err != nil {
			return exit.Misused("--start: %w", err)
		}
		if from, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return exit.Misused("--start needs a zone, as in: %s UTC", strings.ReplaceAll(text, "T", " "))
		}
	}
	body["count"] = json.RawMessage(fmt.Sprint(mostPreviewed))
	_, o, err := preview(ctx, s, body)
	if err != nil {
		return err
	}
	g := newGrid(from, months)
	g.add(o.At("ticks").Items(), func(d *draw.Day) { d.Coming++ })
	if err := g.exclude(ctx, s, body); err != nil {
		return err
	}
	if zone := zoneOf(body["spec"]); zone != "" {
		if err := changeDays(ctx, s, zone, g.from, g.to, g.days); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.Out.W, "%s\n\n%s", o.At("reading"), screen(s).Months(g.first, g.last, g.days))
	g.cut(s, o.At("ticks").Items())
	if err := listNext(ctx, s, o.At("ticks").Items(), listed, zoneOf(body["spec"])); err != nil {
		return err
	}
	noteWarnings(s, o)
	return nil
}

// zoneOf returns the zone of a spec, or "" if it is the subject's.
func zoneOf(spec json.RawMessage) string {
	var members struct{ Timezone string }
	if err := json.Unmarshal(spec, &members); err != nil || strings.HasPrefix(members.Timezone, "@") {
		return ""
	}
	if members.Timezone == "" {
		return "UTC"
	}
	return members.Timezone
}

// listNext prints the first coming ticks.
func listNext(ctx context.Context, s *command.Session, ticks []output.Object, most int, zone string) error {
	if len(ticks) > 0 {
		fmt.Fprintln(s.Out.W)
	}
	for _, tick := range ticks[:min(most, len(ticks))] {
		shown := s.Out.Clock.Show(ctx, tick.At("timestamp").String(), tick.At("local_time").String())
		if zone != "" {
			distance, _, _ := strings.Cut(shown, ",")
			shown = moment(ctx, s, zone, tick.At("timestamp").String()) + ", " + distance
		}
		if note := dstNotes[tick.At("dst").String()]; note != "" {
			shown += "   " + screen(s).Warn(note)
		}
		if _, err := fmt.Fprintln(s.Out.W, shown); err != nil {
			return err
		}
	}
	return nil
}

// dstNotes say how a wall time was resolved.
var dstNotes = map[string]string{
	"gap":            "◆ moved: the clock skips this time",
	"overlap_first":  "◆ the first of two: the clock shows this time twice",
	"overlap_second": "◆ the second of two: the clock shows this time twice",
}
