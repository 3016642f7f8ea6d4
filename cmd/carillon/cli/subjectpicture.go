package cli

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// mostTicks is how many coming and how many last ticks an overview shows.
const mostTicks = 8

// drawOverview prints what a subject has: its profile in a card, its schedules, and its coming and last ticks.
func drawOverview(ctx context.Context, s *command.Session, r api.Request) error {
	_, o, err := fetch(ctx, s, r)
	if err != nil {
		return err
	}
	zone := o.At("timezone_in_force").String()
	rows := []draw.Row{{Name: "zone", Value: or(zone, "none: schedules use their own")}}
	if profile := o.At("profile"); profile.Null() {
		rows = append(rows, draw.Row{Name: "profile", Value: "none"})
	} else {
		rows = append(rows, draw.Row{Name: "quiet hours", Value: or(profile.At("quiet_hours").String(), "none")}, draw.Row{Name: "labels", Value: or(profile.At("labels").String(), "none")})
	}
	schedules := o.At("schedules").Items()
	count := draw.Count(int64(len(schedules)))
	if o.At("more").String() == "true" {
		count = "more than " + count
	}
	rows = append(rows, draw.Row{Name: "schedules", Value: count})
	picture := screen(s)
	fmt.Fprint(s.Out.W, picture.Card(o.At("subject").String(), rows))
	for _, one := range schedules {
		fmt.Fprintln(s.Out.W, picture.Cut(fmt.Sprintf("  %-10s %s  %s", one.At("status"), scheduleOf(one), picture.Quiet(one.At("reading").String()))))
	}
	fmt.Fprintln(s.Out.W, "\ncoming"+none(o.At("upcoming").Items()))
	for _, tick := range first(o.At("upcoming").Items()) {
		fmt.Fprintln(s.Out.W, picture.Cut("  "+localMoment(ctx, s, zone, tick)+"   "+scheduleOf(tick)))
	}
	fmt.Fprintln(s.Out.W, "\nlast"+none(o.At("recent").Items()))
	for _, tick := range first(o.At("recent").Items()) {
		state := outcomeColour(picture, tick.At("state").String())
		if reason := tick.At("reason").String(); reason != "" {
			state += " (" + reason + ")"
		}
		fmt.Fprintln(s.Out.W, picture.Cut("  "+localMoment(ctx, s, tick.At("timezone").String(), tick)+"   "+scheduleOf(tick)+"   "+state))
	}
	return nil
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// none says after a heading that its list is empty.
func none(list []output.Object) string {
	if len(list) > 0 {
		return ""
	}
	return ": none"
}

// first returns the first ticks of a list.
func first(ticks []output.Object) []output.Object { return ticks[:min(len(ticks), mostTicks)] }

// localMoment returns the time of a tick in the schedule's zone, or in that of --clock.
func localMoment(ctx context.Context, s *command.Session, zone string, tick output.Object) string {
	if zone == "" {
		return s.Out.Clock.Plain(ctx, tick.At("timestamp").String(), tick.At("local_time").String())
	}
	return moment(ctx, s, zone, tick.At("timestamp").String())
}

// drawDay prints what a subject got on a day: a verdict for each workflow, and its ticks.
func drawDay(ctx context.Context, s *command.Session, r api.Request) error {
	_, o, err := fetch(ctx, s, r)
	if err != nil {
		return err
	}
	picture, zone := screen(s), o.At("timezone").String()
	fmt.Fprintf(s.Out.W, "%s on %s in %s\n", o.At("subject"), o.At("on"), zone)
	if len(o.At("workflows").Items()) == 0 {
		fmt.Fprintln(s.Out.W, "  no schedule was there for it")
	}
	for _, w := range o.At("workflows").Items() {
		fmt.Fprintln(s.Out.W, picture.Wrap(fmt.Sprintf("  %s  %s  %s", outcomeColour(picture, w.At("verdict").String()), w.At("workflow"), w.At("detail")), 4))
		for _, tick := range first(w.At("planned").Items()) {
			fmt.Fprintln(s.Out.W, picture.Cut("    "+localMoment(ctx, s, zone, tick)+"   "+outcomeColour(picture, tick.At("outcome").String())+"   "+picture.Quiet(tick.At("tick_id").String())))
		}
		if more := len(w.At("planned").Items()) - mostTicks; more > 0 {
			fmt.Fprintf(s.Out.W, "    … and %s more\n", draw.Count(int64(more)))
		}
	}
	if o.At("more").String() == "true" {
		s.Note("there are more schedules or ticks than these")
	}
	return nil
}
