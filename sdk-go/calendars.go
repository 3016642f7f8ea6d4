package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Calendars are the named calendars of the tenant. A spec omits their days with [Exclude].
type Calendars struct{ c *Client }

// CalendarParams define a named calendar: the days of Dates and of ICS together, at most 5,000.
type CalendarParams struct {
	Dates []string `json:"dates,omitempty"` // "2027-01-01"
	ICS   string   `json:"ics,omitempty"`   // an iCalendar document (RFC 5545), of which the all-day events count

	IfMatch time.Time `json:"-"` // if not zero, the UpdatedAt that must be the stored one
	DryRun  bool      `json:"-"` // store nothing, and return the calendar as it would be
}

// NamedCalendar is a stored calendar.
type NamedCalendar struct {
	Name      string    `json:"name"`
	Dates     []string  `json:"dates"` // in order, each once
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
}

// Put creates or replaces a calendar. Schedules that name it fire by its new days from then on.
func (c Calendars) Put(ctx context.Context, name string, p CalendarParams) (NamedCalendar, error) {
	q := query{}
	q.flag("dry_run", p.DryRun)
	header := ifUnchanged(p.IfMatch)
	return send[NamedCalendar](ctx, c.c, &call{method: http.MethodPut, path: path("calendars", name), query: url.Values(q), header: header, once: header != nil}, p)
}

// Get returns a calendar.
func (c Calendars) Get(ctx context.Context, name string) (NamedCalendar, error) {
	return get[NamedCalendar](ctx, c.c, path("calendars", name), nil)
}

// List iterates over the calendars by name. An error comes once and ends the loop.
func (c Calendars) List(ctx context.Context) iter.Seq2[NamedCalendar, error] {
	return pages[NamedCalendar](ctx, c.c, path("calendars"), url.Values{})
}

// Delete deletes a calendar. It returns ErrConflict if a schedule names the calendar.
func (c Calendars) Delete(ctx context.Context, name string, p ...RemoveParams) error {
	return c.c.remove(ctx, removal(path("calendars", name), p))
}
