package carillon

import (
	"context"
	"encoding/json"
	"time"
)

// Overview is the state of all firing of the tenant. Counts that stop at a bound say so with Truncated.
type Overview struct {
	At         time.Time           `json:"at"`
	Firing     Firing              `json:"firing"`
	Schedules  ScheduleCounts      `json:"schedules"`
	Due        *Ahead              `json:"due"` // nil until it is computed, which may take seconds
	Backlog    Backlog             `json:"backlog"`
	Running    RunningCounts       `json:"running"`
	Lateness   Lateness            `json:"lateness"`
	Failures   FailureCounts       `json:"failures"`
	Throttling []Throttle          `json:"throttling"`
	Unmet      []Unmet             `json:"unmet"` // up to 100
	Held       []HeldWorkflow      `json:"held"`  // up to 100
	Quotas     map[string]QuotaUse `json:"quotas"`
}

// ScheduleCounts counts schedules by status, as of some seconds ago.
type ScheduleCounts struct {
	Total       int64            `json:"total"`
	Active      int64            `json:"active"`
	Paused      int64            `json:"paused"`
	Completed   int64            `json:"completed"`
	Quarantined int64            `json:"quarantined"`
	Workflows   []WorkflowCounts `json:"workflows"` // largest first
	Truncated   bool             `json:"truncated"`
}

// WorkflowCounts counts the schedules of a workflow by status.
type WorkflowCounts struct {
	Workflow    string `json:"workflow"`
	Active      int64  `json:"active"`
	Paused      int64  `json:"paused"`
	Completed   int64  `json:"completed"`
	Quarantined int64  `json:"quarantined"`
}

// Ahead counts ticks that are due in the next minute, hour and day.
type Ahead struct {
	Minute int64 `json:"minute"` // in the rest of this minute and in the next
	Hour   int64 `json:"hour"`
	Day    int64 `json:"day"`
}

// Backlog counts due ticks that are not handed out.
type Backlog struct {
	Unswept   int64      `json:"unswept"`   // that wait for the sweep, or for the tenant's turn
	Unopened  int64      `json:"unopened"`  // swept and not handed out
	OldestAt  *time.Time `json:"oldest_at"` // nominal time of the oldest of these; nil: there are none
	Ready     int64      `json:"ready"`     // that wait for a worker
	Held      int64      `json:"held"`      // for later: retries, and those that an endpoint or a slot holds up
	Buffered  int64      `json:"buffered"`  // that wait for another tick of their schedule to end
	Truncated bool       `json:"truncated"`
}

// RunningCounts counts running ticks.
type RunningCounts struct {
	Pushed  int64 `json:"pushed"`  // being pushed
	Awaited int64 `json:"awaited"` // accepted with 202 and not completed
	Leased  int64 `json:"leased"`
}

// Lateness is the time from nominal times to handing out, of a sample of the last hour's ticks. Members are nil without ticks.
type Lateness struct {
	P50MS *int64 `json:"p50_ms"`
	P99MS *int64 `json:"p99_ms"`
	MaxMS *int64 `json:"max_ms"`
	Ticks int64  `json:"ticks"` // in the sample
}

// FailureCounts counts failures.
type FailureCounts struct {
	DeadLetters int64          `json:"dead_letters"`
	LastHour    int64          `json:"last_hour"` // of these, those of the last hour
	Retrying    int64          `json:"retrying"`  // ticks that wait for another attempt
	Endpoints   []IdleEndpoint `json:"endpoints"` // that are held or disabled
	Truncated   bool           `json:"truncated"`
}

// IdleEndpoint is an endpoint that is held or disabled.
type IdleEndpoint struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// Throttle is a limit that delays or refuses something now.
type Throttle struct {
	By       string     `json:"by"`       // a quota, or "max_running"
	Workflow string     `json:"workflow"` // of max_running; empty for a quota
	Waiting  int64      `json:"waiting"`  // ticks, at least; 0 if it refuses requests
	Since    *time.Time `json:"since"`
}

// Unmet is a workflow that is late, silent or without workers now.
type Unmet struct {
	Workflow string          `json:"workflow"`
	Event    string          `json:"event"` // as in Event.Type
	Since    time.Time       `json:"since"`
	Data     json.RawMessage `json:"data"` // as in Event.Data
}

// HeldWorkflow is a workflow of which nothing is handed out.
type HeldWorkflow struct {
	Workflow string    `json:"workflow"`
	Since    time.Time `json:"since"`
}

// Overview returns the state of all firing. It costs about the same for a million schedules as for one.
func (a Admin) Overview(ctx context.Context) (Overview, error) {
	return get[Overview](ctx, a.c, path("admin", "overview"), nil)
}
