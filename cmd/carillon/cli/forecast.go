package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// minuteRow is a minute of a forecast.
var minuteRow = output.Layout{Columns: []output.Column{
	{Name: "at", Kind: output.Time}, {Name: "ticks", Kind: output.Count}, {Name: "backlog", Kind: output.Count},
}}

// groupRow is a group of schedules in a forecast.
var groupRow = output.Layout{Columns: []output.Column{
	{Name: "workflow"}, {Name: "timezone"}, {Name: "reading"}, {Name: "count", Kind: output.Count}, {Name: "next", Path: "next_at", Kind: output.Time},
}}

func (c commander) adminForecast() *cobra.Command {
	return c.command(command.Spec{
		Use:   "forecast",
		Short: "Show how many ticks the coming hours have, beside the quota",
		Long: `Shows how many ticks the stored schedules have in each coming minute, beside the quota: on a
terminal as a curve, with the peaks, when the last tick of each is handed out, and the jitter
that spreads it. With --group a pipe gets the groups instead of the minutes.`,
		Example: `  carillon admin forecast --hours 24
  carillon admin forecast --workflow daily-digest --group timezone
  carillon admin forecast --hours 168 -o csv > week.csv`,
		Fields: []command.Field{
			{Flag: "hours", Kind: command.Number, Value: "N", Help: "how far ahead, at most 168 (default: 24)"},
			{Flag: "workflow", Value: "NAME", Help: "only this workflow", From: workflowNames},
			{Flag: "group", Value: "BY", Help: "one or more of workflow, timezone and timing, with commas: the largest groups", Values: []string{"workflow", "timezone", "timing"}},
			{Flag: "at", Kind: command.Moment, Value: "TIME", Help: "with --group: count the ticks of this minute"},
		},
		Run: func(ctx context.Context, s *command.Session) error {
			q, err := s.Query()
			if err != nil {
				return err
			}
			r := api.Request{Path: "/v1/admin/forecast", Query: q}
			switch {
			case s.Out.JSON():
				return s.Show(ctx, r, minuteRow)
			case pictured(s):
				return drawForecast(ctx, s, r)
			case q.Has("group"):
				return s.ShowItems(ctx, r, "groups", groupRow)
			}
			return s.ShowItems(ctx, r, "minutes", minuteRow)
		},
	})
}

// drawForecast prints the curve, the peaks, the groups and the warnings.
func drawForecast(ctx context.Context, s *command.Session, r api.Request) error {
	raw, o, err := fetch(ctx, s, r)
	if err != nil {
		return err
	}
	c := draw.Curve{Quota: 60 * number(o.At("ticks_per_second")), Zone: time.UTC}
	if c.From, err = time.Parse(time.RFC3339, o.At("from").String()); err != nil {
		return err
	}
	if c.To, err = time.Parse(time.RFC3339, o.At("to").String()); err != nil {
		return err
	}
	c.Zone = located(ctx, s, "UTC", c.From).Location()
	for _, m := range o.At("minutes").Items() {
		at, err := time.Parse(time.RFC3339, m.At("at").String())
		if err != nil {
			return err
		}
		c.Points = append(c.Points, draw.Point{At: at, Ticks: number(m.At("ticks"))})
	}
	summary := fmt.Sprintf("%s ticks from %s to %s; about %s a day; the quota is %s a second",
		draw.Count(number(o.At("ticks"))), moment(ctx, s, "UTC", o.At("from").String()), moment(ctx, s, "UTC", o.At("to").String()),
		draw.Count(number(o.At("projected_ticks_per_day"))), draw.Count(number(o.At("ticks_per_second"))))
	fmt.Fprintf(s.Out.W, "%s\n\n%s", screen(s).Wrap(summary, 0), screen(s).Curve(c))
	drawPeaks(ctx, s, o)
	if groups := o.At("groups").Items(); len(groups) > 0 {
		var list struct{ Groups []json.RawMessage }
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		fmt.Fprintln(s.Out.W)
		if err := s.Out.List(ctx, command.Each(list.Groups), groupRow); err != nil {
			return err
		}
	}
	if o.At("truncated").String() == "true" {
		s.Note("there are too many timings or groups: some stand for the others, or are not shown")
	}
	for _, w := range o.At("warnings").Items() {
		s.Note("%s", screen(s).Wrap("tip: "+w.At("detail").String(), 5))
	}
	return nil
}

// drawPeaks prints a line for each backlog, or for the largest minute if there is none.
func drawPeaks(ctx context.Context, s *command.Session, o output.Object) {
	peaks := o.At("peaks").Items()
	if len(peaks) > 0 {
		fmt.Fprintln(s.Out.W, "\npeaks above the quota")
	}
	for _, p := range peaks {
		drains := "it does not drain within the forecast"
		if at, err := time.Parse(time.RFC3339, p.At("drained_at").String()); err == nil {
			drains = "drains " + located(ctx, s, "UTC", at).Format("15:04:05")
		}
		fmt.Fprintf(s.Out.W, "  %s   %s ticks   %s   without waiting: --jitter %s\n", moment(ctx, s, "UTC", p.At("at").String()),
			draw.Count(number(p.At("ticks"))), screen(s).Warn(drains), p.At("jitter"))
	}
	if peak := o.At("peak"); len(peaks) == 0 && !peak.Null() {
		fmt.Fprintf(s.Out.W, "\npeak %s   %s ticks, within the quota\n", moment(ctx, s, "UTC", peak.At("at").String()), draw.Count(number(peak.At("ticks"))))
	}
}

func (c commander) workflowWave() *cobra.Command {
	return c.command(command.Spec{
		Use:   "wave WORKFLOW",
		Short: "Show where on Earth the schedules of a workflow are: a row for each offset from UTC",
		Long: `Shows how the active schedules of a workflow are spread over the time zones: a row for each hour
of offset from UTC, from east to west, with the number of schedules, the time of the first
tick in the next 24 hours, and the largest zone. A pipe gets a line for each zone.`,
		Example: `  carillon workflow wave daily-digest
  carillon workflow wave daily-digest --clock mine
  carillon workflow wave daily-digest -o csv`,
		Args: []command.Completion{workflowNames},
		Run: func(ctx context.Context, s *command.Session) error {
			r := api.Request{Path: "/v1/admin/forecast", Query: query("workflow", s.Args[0], "group", "timezone", "hours", "24")}
			switch {
			case s.Out.JSON():
				return s.Show(ctx, r, groupRow)
			case pictured(s):
				return drawWave(ctx, s, r)
			}
			return s.ShowItems(ctx, r, "groups", zoneGroupRow)
		},
	})
}

// zoneGroupRow is the schedules of a zone.
var zoneGroupRow = output.Layout{Columns: []output.Column{
	{Name: "timezone"}, {Name: "count", Kind: output.Count}, {Name: "next", Path: "next_at", Kind: output.Time},
}}

// drawWave prints the wave of the zones, with the offsets that the server knows.
func drawWave(ctx context.Context, s *command.Session, r api.Request) error {
	_, forecast, err := fetch(ctx, s, r)
	if err != nil {
		return err
	}
	_, zones, err := fetch(ctx, s, api.Request{Path: "/v1/zones"})
	if err != nil {
		return err
	}
	offsets := map[string]time.Duration{}
	for _, zone := range zones.At("items").Items() {
		if at, err := time.Parse("-07:00", zone.At("offset").String()); err == nil {
			_, seconds := at.Zone()
			offsets[zone.At("timezone").String()] = time.Duration(seconds) * time.Second
		}
	}
	var crests []draw.Crest
	var total int64
	for _, g := range forecast.At("groups").Items() {
		zone := g.At("timezone").String()
		next, _ := time.Parse(time.RFC3339, g.At("next_at").String()) // null: none comes
		crests = append(crests, draw.Crest{Zone: zone, Offset: offsets[zone], Count: number(g.At("count")), NextAt: next})
		total += number(g.At("count"))
	}
	now := located(ctx, s, "UTC", s.Env.Now())
	fmt.Fprintf(s.Out.W, "%s active schedules of %s in %d zones; times of the first ticks in %s\n\n", draw.Count(total), s.Args[0], len(crests), now.Format("MST"))
	_, err = fmt.Fprint(s.Out.W, screen(s).Wave(crests, now.Location()))
	if forecast.At("truncated").String() == "true" {
		s.Note("only the largest groups are counted")
	}
	return err
}
