package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// screen returns what pictures on standard output are made for.
func screen(s *command.Session) draw.Screen {
	return draw.Screen{Width: s.Out.Width, Colour: s.Out.Terminal && s.Env.Getenv("NO_COLOR") == "" && s.Env.Getenv("TERM") != "dumb"}
}

// pictured reports whether the user sees a picture: on a terminal, unless a format or columns are chosen.
func pictured(s *command.Session) bool {
	return s.Out.Terminal && s.Out.Format == "table" && len(s.Out.Columns) == 0
}

// fetch sends a request and decodes its answer.
func fetch(ctx context.Context, s *command.Session, r api.Request) (raw json.RawMessage, o output.Object, err error) {
	answer, err := s.API.Do(ctx, r)
	if err != nil {
		return nil, o, err
	}
	o, err = output.Read(answer.Body)
	return answer.Body, o, err
}

// located returns an instant in the zone of --clock, which is by default the given one. The server knows the zone's offset.
func located(ctx context.Context, s *command.Session, zone string, at time.Time) time.Time {
	switch s.Out.Clock.Name {
	case "mine":
		return at.Local()
	case "utc":
		return at.UTC()
	case "", "schedule":
	default:
		zone = s.Out.Clock.Name
	}
	location, err := s.Out.Clock.Zone(ctx, zone, at)
	if err != nil {
		return at.UTC() // the printed abbreviation says UTC
	}
	return at.In(location)
}

// moment returns an instant in short, as Mon 2 Jan 15:04 CET, with seconds and the year only if they matter.
func moment(ctx context.Context, s *command.Session, zone, instant string) string {
	at, err := time.Parse(time.RFC3339Nano, instant)
	if err != nil {
		return instant
	}
	local, form := located(ctx, s, zone, at), "Mon 2 Jan"
	if local.Year() != s.Env.Now().Year() {
		form += " 2006"
	}
	form += " 15:04"
	if local.Second() != 0 {
		form += ":05"
	}
	name, _ := local.Zone()
	if name == "" {
		return local.Format(form + " -07:00")
	}
	return local.Format(form + " MST")
}

// localDate returns the day of a local time such as 2026-11-23T08:00:00-05:00.
func localDate(text string) (calendar.Date, bool) {
	if len(text) < len(time.DateOnly) {
		return calendar.Date{}, false
	}
	date, err := calendar.ParseDate(text[:len(time.DateOnly)])
	return date, err == nil
}

// changeDays marks the days between two instants on which the clock of a zone changes, as the server knows it.
func changeDays(ctx context.Context, s *command.Session, zone string, from, to time.Time, days map[calendar.Date]draw.Day) error {
	_, o, err := fetch(ctx, s, api.Request{Path: api.Path("v1", "zones", zone), Query: query("from", from.UTC().Format(time.RFC3339), "to", to.UTC().Format(time.RFC3339))})
	if err != nil {
		return err
	}
	for _, change := range o.At("transitions").Items() {
		if change.At("before").String() == change.At("after").String() {
			continue // only its abbreviation changes
		}
		at, err := time.Parse(time.RFC3339, change.At("at").String())
		if err != nil {
			return err
		}
		offset, err := time.Parse("-07:00", change.At("after").String())
		if err != nil {
			continue // offsets with seconds are of the distant past
		}
		_, seconds := offset.Zone()
		shown := at.UTC().Add(time.Duration(seconds) * time.Second)
		date := calendar.Date{Year: shown.Year(), Month: shown.Month(), Day: shown.Day()}
		day := days[date]
		day.ClockChange = true
		days[date] = day
	}
	return nil
}

// query returns parameters from names and values.
func query(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	return values
}
