package carillon

import (
	"context"
	"strings"
	"time"
)

// ForecastParams select what a forecast counts.
type ForecastParams struct {
	Hours    int       // how far ahead, up to 168; zero is 24
	Workflow string    // empty: all
	Group    []string  // what to group by: "workflow", "timezone", "timing"; empty: no groups
	At       time.Time // with Group: count the ticks of this minute instead of schedules
}

// Forecast is how many ticks are due in each coming minute, compared with the tenant's rate.
type Forecast struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	TicksPerSecond       int64 `json:"ticks_per_second"`        // the quota
	ProjectedTicksPerDay int64 `json:"projected_ticks_per_day"` // of all that is stored, on the average of a week
	Ticks                int64 `json:"ticks"`                   // due from From to To

	Peak      *ForecastMinute  `json:"peak"`    // the minute with most due ticks; nil: there are none
	Peaks     []ForecastPeak   `json:"peaks"`   // minutes with more due ticks than the quota lets through; one for each backlog
	Minutes   []ForecastMinute `json:"minutes"` // those with due or waiting ticks
	Warnings  []Warning        `json:"warnings"`
	Truncated bool             `json:"truncated"`        // there are too many timings to compute each, or too many groups to show each
	Groups    []ForecastGroup  `json:"groups,omitempty"` // up to 200, the largest first
}

// ForecastMinute is a minute of a forecast.
type ForecastMinute struct {
	At      time.Time `json:"at"`      // when it begins
	Ticks   int64     `json:"ticks"`   // due in it
	Backlog int64     `json:"backlog"` // ticks that still wait for their turn when the minute ends
}

// ForecastPeak is a minute in which more ticks are due than the quota lets through.
type ForecastPeak struct {
	At        time.Time  `json:"at"` // when the minute begins
	Ticks     int64      `json:"ticks"`
	DrainedAt *time.Time `json:"drained_at"` // when none of its ticks waits any more; nil: after the forecast
	Jitter    string     `json:"jitter"`     // with this jitter none of its ticks waits
}

// ForecastGroup is a group of schedules. A member is empty if the forecast is not grouped by it.
type ForecastGroup struct {
	Workflow string     `json:"workflow"`
	Timezone string     `json:"timezone"`
	Reading  string     `json:"reading"` // the timing in English
	Count    int64      `json:"count"`   // schedules; with At, ticks of that minute
	NextAt   *time.Time `json:"next_at"` // the first tick of the group from now on, or from At on
}

// Forecast returns the due ticks of the coming hours, as of some seconds or minutes ago.
func (a Admin) Forecast(ctx context.Context, p ForecastParams) (Forecast, error) {
	q := query{}
	q.number("hours", p.Hours)
	q.text("workflow", p.Workflow)
	q.text("group", strings.Join(p.Group, ","))
	q.time("at", p.At)
	return get[Forecast](ctx, a.c, path("admin", "forecast"), q)
}

// ClockParams select the changes of a clock report; zero times stand for now, and for a year later.
type ClockParams struct {
	From     time.Time
	To       time.Time // not included
	Workflow string    // empty: all
}

// ClockReport is what coming changes of the clock do to the schedules.
type ClockReport struct {
	Changes   []ClockChange `json:"changes"`
	Truncated bool          `json:"truncated"` // there are too many timings to compute each
}

// ClockChange is a moment at which the clock is set forward or back in zones that active schedules use.
type ClockChange struct {
	At        time.Time     `json:"at"`
	Timezones []string      `json:"timezones"`
	Kind      string        `json:"kind"`       // "gap": wall times are skipped; "overlap": they are repeated
	FromLocal string        `json:"from_local"` // what the clock would show without the change
	ToLocal   string        `json:"to_local"`   // what it shows from then on
	Schedules int64         `json:"schedules"`  // that have a wall time which the change skips or repeats
	Effects   []ClockEffect `json:"effects"`
}

// ClockEffect is what a change does to some schedules, by their DST policy.
type ClockEffect struct {
	Effect string        `json:"effect"` // "shifted", "skipped", "next_valid", "once_first", "once_last" or "twice"
	Count  int64         `json:"count"`  // schedules
	Sample []ClockSample `json:"sample"`
}

// ClockSample is one schedule that a change concerns.
type ClockSample struct {
	Workflow  string `json:"workflow"`
	Key       string `json:"key"`
	LocalTime string `json:"local_time"` // its first wall time that the change skips or repeats
}

// ClockChanges returns what coming changes of the clock do to the schedules.
func (a Admin) ClockChanges(ctx context.Context, p ClockParams) (ClockReport, error) {
	q := query{}
	q.time("from", p.From)
	q.time("to", p.To)
	q.text("workflow", p.Workflow)
	return get[ClockReport](ctx, a.c, path("admin", "dst"), q)
}
