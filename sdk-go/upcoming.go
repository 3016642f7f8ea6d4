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
func (c *Client) Upcoming(ctx context.Context, workflow, key string, p UpcomingParams) (Upcoming, error) {
	q := query{}
	q.number("count", p.Count)
	q.time("from", p.From)
	return read[Upcoming](ctx, c, &call{method: http.MethodGet, path: schedulePath(workflow, key, "upcoming"), query: url.Values(q)})
}

// Preview returns the coming ticks of a spec without storing it. An invalid spec is ErrInvalid; the [*Error] names the fields.
func (c *Client) Preview(ctx context.Context, spec Spec, p UpcomingParams) (Upcoming, error) {
	asked := struct {
		Spec  Spec       `json:"spec"`
		From  *time.Time `json:"from,omitempty"`
		Count int        `json:"count,omitempty"`
	}{Spec: spec, Count: p.Count}
	if !p.From.IsZero() {
		asked.From = new(p.From.UTC())
	}
	body, err := encode(asked)
	if err != nil {
		return Upcoming{}, err
	}
	return read[Upcoming](ctx, c, &call{method: http.MethodPost, path: path("schedules", "preview"), body: body})
}
