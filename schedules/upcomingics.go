package schedules

import (
	"context"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/carillonhq/carillon/tenants"
)

const icsType = "text/calendar"

// UpcomingICS is Upcoming as an iCalendar (RFC 5545): an event of no length for each coming tick, whose UID stays the same
// as long as its schedule and its nominal time do.
func (s *Schedules) UpcomingICS(ctx context.Context, tenant tenants.ID, workflow, key string, count int, from time.Time) (string, error) {
	r, p, now, err := s.lookAhead(ctx, tenant, workflow, key, count, from)
	if err != nil {
		return "", err
	}
	cal := ics.NewCalendarFor("Carillon")
	cal.SetCalscale("GREGORIAN")
	for _, tick := range p.Ticks {
		e := cal.AddEvent(fmt.Sprintf("%s-%d@carillon", s.IDs.Schedule(r.ID), tick.Timestamp.Unix()))
		e.SetDtStampTime(now)
		e.SetStartAt(tick.Timestamp)
		e.SetSummary(workflow + "/" + key)
		e.SetDescription(p.Reading)
		e.SetTimeTransparency(ics.TransparencyTransparent)
	}
	return cal.Serialize(ics.WithNewLineWindows), nil
}

// wantsICS tells whether an Accept header (RFC 9110, section 12.5.1) names iCalendar, and JSON not before it.
func wantsICS(accept string) bool {
	calendar, plain := 0.0, 0.0
	for one := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(one)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		switch media {
		case icsType:
			calendar = q
		case "application/json":
			plain = q
		}
	}
	return calendar > 0 && calendar >= plain
}
