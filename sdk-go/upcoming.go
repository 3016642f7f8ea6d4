package carillon

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// UpcomingParams bound the list of coming ticks.
type UpcomingParams struct {
	Count int       // up to 1,000; zero is the server's default
	From  time.Time // ticks strictly after; zero is now
}

func (p UpcomingParams) query() query {
	q := query{}
	q.number("count", p.Count)
	q.time("from", p.From)
	return q
}

// Upcoming is a list of coming ticks.
type Upcoming struct {
	Ticks     []UpcomingTick `json:"ticks"`
	Reading   string         `json:"reading"` // the spec in words
	Warnings  []Warning      `json:"warnings"`
	Class     string         `json:"class"`     // "fixed", "every_hour", "elapsed" or "mixed"
	Exhausted bool           `json:"exhausted"` // there are no ticks after Ticks
}

// UpcomingTick is a tick to come.
type UpcomingTick struct {
	Timestamp time.Time `json:"timestamp"`  // nominal
	LocalTime time.Time `json:"local_time"` // the same instant with the offset of the schedule's zone
	DST       string    `json:"dst"`        // "none", "gap", "overlap_first" or "overlap_second"
}

// Upcoming returns the coming ticks of a stored schedule.
func (s Schedules) Upcoming(ctx context.Context, workflow, key string, p UpcomingParams) (Upcoming, error) {
	return get[Upcoming](ctx, s.c, schedulePath(workflow, key, "upcoming"), p.query())
}

// UpcomingICS returns the coming ticks of a stored schedule as an iCalendar document (RFC 5545).
func (s Schedules) UpcomingICS(ctx context.Context, workflow, key string, p UpcomingParams) ([]byte, error) {
	return s.c.do(ctx, &call{
		method: http.MethodGet,
		path:   schedulePath(workflow, key, "upcoming"),
		query:  url.Values(p.query()),
		header: map[string]string{"Accept": "text/calendar"},
	})
}

// PreviewParams name the schedule that the spec is previewed for, and bound the list of its ticks.
type PreviewParams struct {
	Workflow string     `json:"workflow,omitempty"` // Workflow and Key together determine the value of H in a cron expression
	Key      string     `json:"key,omitempty"`
	Subject  string     `json:"subject,omitempty"` // whose profile the zone "@subject" follows; empty: the key
	From     *time.Time `json:"from,omitempty"`    // ticks strictly after; nil is now
	Until    *time.Time `json:"until,omitempty"`   // no ticks after
	Count    int        `json:"count,omitempty"`   // up to 1,000; zero is the server's default
}

// preview is the body of a preview.
type preview struct {
	Spec Spec `json:"spec"`
	PreviewParams
}

// Preview returns the coming ticks of a spec without storing it. An invalid spec is ErrInvalid; the [*Error] names the fields.
func (s Schedules) Preview(ctx context.Context, spec Spec, p PreviewParams) (Upcoming, error) {
	return send[Upcoming](ctx, s.c, &call{method: http.MethodPost, path: path("schedules", "preview")}, preview{spec, p})
}
