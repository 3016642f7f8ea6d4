package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// mostMonths is how many months a grid has.
const mostMonths = 24

func monthsFlag(f *pflag.FlagSet) { f.Int("months", 2, "how many months a terminal shows") }

func monthsOf(s *command.Session) (int, error) {
	months, err := strconv.Atoi(s.Command.Flags().Lookup("months").Value.String())
	if err != nil || months < 1 || months > mostMonths {
		return 0, exit.Misused("--months is 1 to %d", mostMonths)
	}
	return months, nil
}

// grid is the days of some months.
type grid struct {
	first, last calendar.Date
	from, to    time.Time // a little before the first day and after the last, in any zone
	days        map[calendar.Date]draw.Day
}

func newGrid(from time.Time, months int) *grid {
	begin := time.Date(from.Year(), from.Month(), 1, 0, 0, 0, 0, time.UTC)
	end := begin.AddDate(0, months, 0)
	last := end.AddDate(0, 0, -1)
	return &grid{
		first: calendar.Date{Year: begin.Year(), Month: begin.Month(), Day: 1},
		last:  calendar.Date{Year: last.Year(), Month: last.Month(), Day: last.Day()},
		from:  begin.Add(-24 * time.Hour), to: end.Add(24 * time.Hour), days: map[calendar.Date]draw.Day{},
	}
}

// add counts ticks on their local days.
func (g *grid) add(ticks []output.Object, count func(*draw.Day)) {
	for _, tick := range ticks {
		if date, ok := localDate(tick.At("local_time").String()); ok && g.has(date) {
			day := g.days[date]
			count(&day)
			g.days[date] = day
		}
	}
}

func (g *grid) has(d calendar.Date) bool {
	return d.String() >= g.first.String() && d.String() <= g.last.String()
}

// exclude marks the days on which the exclusions of the spec drop every tick.
func (g *grid) exclude(ctx context.Context, s *command.Session, body map[string]json.RawMessage) error {
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(body["spec"], &spec); err != nil || spec["exclude"] == nil {
		return err
	}
	delete(spec, "exclude")
	without, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	plain := maps.Clone(body)
	plain["spec"] = without
	_, o, err := preview(ctx, s, plain)
	if err != nil {
		return err
	}
	g.add(o.At("ticks").Items(), func(d *draw.Day) { d.Excluded = d.Coming == 0 })
	return nil
}

// cut tells the user that the grid shows only the first ticks, if the answer has as many ticks as one request can return.
func (g *grid) cut(s *command.Session, ticks []output.Object) {
	if len(ticks) < mostPreviewed {
		return
	}
	last := ticks[len(ticks)-1]
	if date, ok := localDate(last.At("local_time").String()); ok && g.has(date) {
		s.Note("only the first %d ticks are shown, until %s", mostPreviewed, date)
	}
}

// drawSchedule draws the months of a stored schedule from the current one on: what fired, what failed and what is coming.
func drawSchedule(ctx context.Context, s *command.Session, t target) error {
	months, err := monthsOf(s)
	if err != nil {
		return err
	}
	_, schedule, err := fetch(ctx, s, api.Request{Path: t.path()})
	if err != nil {
		return err
	}
	zone, now := schedule.At("timezone_in_force").String(), s.Env.Now()
	g := newGrid(now, months)
	_, coming, err := fetch(ctx, s, api.Request{Path: t.path("upcoming"), Query: query("count", strconv.Itoa(mostPreviewed))})
	if err != nil {
		return err
	}
	ticks := coming.At("ticks").Items()
	g.add(ticks, func(d *draw.Day) { d.Coming++ })
	if err := g.addFired(ctx, s, t, now); err != nil {
		return err
	}
	if err := changeDays(ctx, s, zone, g.from, g.to, g.days); err != nil {
		return err
	}
	fmt.Fprintf(s.Out.W, "%s\n\n%s", schedule.At("reading"), screen(s).Months(g.first, g.last, g.days))
	g.cut(s, ticks)
	return listNext(ctx, s, ticks, 5, zone)
}

// addFired counts the ticks of the grid's days until now.
func (g *grid) addFired(ctx context.Context, s *command.Session, t target, now time.Time) error {
	past := query("from", g.from.UTC().Format(time.RFC3339), "to", now.UTC().Format(time.RFC3339))
	for item, err := range s.API.Items(ctx, t.path("ticks"), past, mostPreviewed) {
		if err != nil {
			return err
		}
		tick, err := output.Read(item)
		if err != nil {
			return err
		}
		g.add([]output.Object{tick}, func(d *draw.Day) {
			switch state, reason := tick.At("state").String(), tick.At("reason").String(); {
			case state == "failed" || reason == "missed":
				d.Failed++
			case state == "succeeded" || state == "running":
				d.Sent++
			}
		})
	}
	return nil
}
