package output

import (
	"context"
	"time"
)

// Clock says in which zone times are shown on a terminal.
type Clock struct {
	Name string // schedule (the server's local time), mine, utc or the name of a zone
	Now  func() time.Time
	Zone func(ctx context.Context, zone string, at time.Time) (*time.Location, error) // asks the server for the offset of a zone at an instant
}

// Show returns an instant relative to now and in the chosen zone. local is the same instant as the server shows it in the schedule's
// zone; it may be empty. A text that is no instant is returned as it is.
func (c Clock) Show(ctx context.Context, instant, local string) string {
	t, err := time.Parse(time.RFC3339Nano, instant)
	if err != nil {
		return instant
	}
	now := c.Now()
	return relative(t, now) + ", " + layout(c.in(ctx, t, local), now)
}

// Short is Show for a cell of a table: it leaves out the weekday, and seconds that are zero.
func (c Clock) Short(ctx context.Context, instant, local string) string {
	t, err := time.Parse(time.RFC3339Nano, instant)
	if err != nil {
		return instant
	}
	now := c.Now()
	at := c.in(ctx, t, local)
	form := "2 Jan 15:04"
	if at.Year() != now.Year() {
		form = "2 Jan 2006 15:04"
	}
	if at.Second() != 0 {
		form += ":05"
	}
	return largest(t, now) + ", " + at.Format(form) + " " + zoneOf(at)
}

// Plain returns an instant in the chosen zone, without its distance from now.
func (c Clock) Plain(ctx context.Context, instant, local string) string {
	t, err := time.Parse(time.RFC3339Nano, instant)
	if err != nil {
		return instant
	}
	return layout(c.in(ctx, t, local), c.Now())
}

// in moves an instant to the chosen zone. Without the server's help it stays in UTC, and says so.
func (c Clock) in(ctx context.Context, t time.Time, local string) time.Time {
	switch c.Name {
	case "mine":
		return t.Local()
	case "utc":
		return t.UTC()
	case "", "schedule":
		if l, err := time.Parse(time.RFC3339Nano, local); err == nil {
			return l
		}
		return t.UTC()
	}
	zone, err := c.Zone(ctx, c.Name, t)
	if err != nil {
		return t.UTC()
	}
	return t.In(zone)
}

// layout formats a time with its zone, and with its year if it is not the current one.
func layout(t, now time.Time) string {
	if t.Year() != now.Year() {
		return t.Format("Mon 2 Jan 2006 15:04:05 ") + zoneOf(t)
	}
	return t.Format("Mon 2 Jan 15:04:05 ") + zoneOf(t)
}

// zoneOf returns the abbreviation of a time's zone, or its offset if the zone has none.
func zoneOf(t time.Time) string {
	name, offset := t.Zone()
	switch {
	case name != "":
		return name
	case offset == 0:
		return "UTC"
	}
	return t.Format("-07:00")
}
