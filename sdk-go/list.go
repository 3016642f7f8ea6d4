package carillon

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// Filter selects schedules of a list; the zero value selects all. At most one of Key, KeyPrefix, KeyContains, Subject, Label, Timezone,
// Calendar, Failing and DueBefore may be set.
type Filter struct {
	Workflow    string
	Status      string
	Key         string
	KeyPrefix   string
	KeyContains string
	Subject     string
	Label       string    // "name:value"
	Timezone    string    // the zone of the spec, or the one that is in force for the subject
	Calendar    string    // the spec leaves out the days of this named calendar
	Failing     bool      // the last ended tick failed
	DueBefore   time.Time // the list is then in the order of due times
	PageSize    int       // schedules per request, up to 1,000; zero is the server's default
}

func (f Filter) query() query {
	q := query{}
	q.text("workflow", f.Workflow)
	q.text("status", f.Status)
	q.text("key", f.Key)
	q.text("key_prefix", f.KeyPrefix)
	q.text("key_contains", f.KeyContains)
	q.text("subject", f.Subject)
	q.text("label", f.Label)
	q.text("timezone", f.Timezone)
	q.text("calendar", f.Calendar)
	q.flag("failing", f.Failing)
	q.time("due_before", f.DueBefore)
	q.number("limit", f.PageSize)
	return q
}

// List iterates over the schedules that filter selects. An error comes once and ends the loop.
func (s Schedules) List(ctx context.Context, filter Filter) iter.Seq2[Schedule, error] {
	return pages[Schedule](ctx, s.c, path("schedules"), url.Values(filter.query()))
}

// ScheduleSummary is a schedule in a list, without payload and note.
type ScheduleSummary struct {
	ID       string `json:"id"`
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Subject  string `json:"subject"`
	Version  int64  `json:"version"`
	Status   string `json:"status"`

	Spec     Spec              `json:"spec"`
	Policy   Policy            `json:"policy"`
	Delivery Delivery          `json:"delivery"`
	Labels   map[string]string `json:"labels"`

	PausedBy    string     `json:"paused_by,omitempty"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	StatusNote  string     `json:"status_note,omitempty"`

	Reading         string `json:"reading"`
	TimezoneInForce string `json:"timezone_in_force"`

	NextAt      *time.Time  `json:"next_at"`
	NextLocal   *time.Time  `json:"next_local"`
	Upcoming    []time.Time `json:"upcoming"`
	LastAt      *time.Time  `json:"last_at"`
	LastTickID  string      `json:"last_tick_id"`
	LastOutcome string      `json:"last_outcome"` // "succeeded" or "failed"; empty before the first tick has ended
	Overdue     bool        `json:"overdue"`      // a tick is due and not handed out yet

	Stats     Stats     `json:"stats"`
	Inherited []string  `json:"inherited"`
	Warnings  []Warning `json:"warnings"`
	TZData    string    `json:"tzdata"`

	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
}

// Summaries is List without payloads and notes, which costs less if payloads are large.
func (s Schedules) Summaries(ctx context.Context, filter Filter) iter.Seq2[ScheduleSummary, error] {
	q := filter.query()
	q.text("fields", "summary")
	return pages[ScheduleSummary](ctx, s.c, path("schedules"), url.Values(q))
}
