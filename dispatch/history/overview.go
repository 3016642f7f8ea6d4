package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Overview is the state of a tenant's firing. Its numbers are stored counts, or are counted up to a limit. It reads no schedules, and
// of the ticks only a sample of those that were handed out lately.
type Overview struct {
	At         time.Time              `json:"at"`
	Firing     Firing                 `json:"firing"`
	Schedules  ScheduleCounts         `json:"schedules"`
	Due        *forecast.Ahead        `json:"due"` // null until it is computed
	Backlog    Backlog                `json:"backlog"`
	Running    RunningCounts          `json:"running"`
	Lateness   Lateness               `json:"lateness"`
	Failures   FailureCounts          `json:"failures"`
	Throttling []Throttle             `json:"throttling"`
	Unmet      []Unmet                `json:"unmet"` // workflows that are late, silent or without workers
	Held       []HeldWorkflow         `json:"held"`  // workflows that hand nothing out
	Quotas     map[string]tenants.Use `json:"quotas"`
}

// Firing says whether a tenant's schedules fire. HaltedAt is when the tenant was halted; null if it is not halted.
type Firing struct {
	HaltedAt *time.Time `json:"halted_at"`
	Note     *string    `json:"note"`
}

// ScheduleCounts are numbers of schedules. They are at most about a second old; those by workflow are some seconds old.
type ScheduleCounts struct {
	Total int64 `json:"total"`
	StateCounts
	Workflows []WorkflowCounts `json:"workflows"` // those with most schedules, at most a thousand
	Truncated bool             `json:"truncated"` // there are more workflows, or more timings than are counted
}

// StateCounts are schedules by state. A schedule whose pause has ended by its time counts as active, or as completed if it has no next
// time.
type StateCounts struct {
	Active      int64 `json:"active"`
	Paused      int64 `json:"paused"`
	Completed   int64 `json:"completed"`
	Quarantined int64 `json:"quarantined"`
}

func (c *StateCounts) add(state string, n int64) {
	switch state {
	case policy.Paused, restingState:
		c.Paused += n
	case policy.Completed:
		c.Completed += n
	case policy.Quarantined:
		c.Quarantined += n
	}
}

// wake moves n schedules whose pause has ended from paused to active, or to completed if they do not fire.
func (c *StateCounts) wake(firing bool, n int64) {
	n = min(n, c.Paused)
	c.Paused -= n
	if firing {
		c.Active += n
	} else {
		c.Completed += n
	}
}

func (c StateCounts) sum() int64 { return c.Active + c.Paused + c.Completed + c.Quarantined }

// WorkflowCounts are the schedules of one workflow.
type WorkflowCounts struct {
	Workflow string `json:"workflow"`
	StateCounts
}

// Backlog counts what is due but not delivered.
type Backlog struct {
	Unswept   int64      `json:"unswept"`   // due ticks that wait for the sweep, or for the tenant's turn
	Unopened  int64      `json:"unopened"`  // swept, but not handed out
	OldestAt  *time.Time `json:"oldest_at"` // nominal time of the oldest of these
	Ready     int64      `json:"ready"`     // handed out, and waiting for a worker
	Held      int64      `json:"held"`      // due later: retries, and ticks that an endpoint or a slot holds up
	Buffered  int64      `json:"buffered"`  // waiting for another tick of their schedule to end
	Truncated bool       `json:"truncated"` // some of the counts stopped at a limit
}

// RunningCounts count ticks that an endpoint or a worker has.
type RunningCounts struct {
	Pushed  int64 `json:"pushed"`  // of chunks that are being pushed
	Awaited int64 `json:"awaited"` // accepted with 202, and not finished
	Leased  int64 `json:"leased"`
}

// Lateness is the time from the nominal times of ticks until they were handed out, of a sample of the last hour; null if none was
// handed out.
type Lateness struct {
	P50   *int64 `json:"p50_ms"`
	P99   *int64 `json:"p99_ms"`
	Most  *int64 `json:"max_ms"`
	Ticks int    `json:"ticks"` // in the sample
}

// FailureCounts count failures.
type FailureCounts struct {
	DeadLetters int64           `json:"dead_letters"`
	LastHour    int64           `json:"last_hour"` // dead letters that failed within the last hour
	Retrying    int64           `json:"retrying"`  // ticks that wait for another attempt
	Endpoints   []EndpointState `json:"endpoints"` // that are held or disabled
	Truncated   bool            `json:"truncated"` // as in Backlog
}

// EndpointState is an endpoint that nothing is pushed to.
type EndpointState struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// Throttle is a limit that delays something now.
type Throttle struct {
	By       string     `json:"by"`       // the name of the quota, or max_running
	Workflow string     `json:"workflow"` // whose max_running; empty: of the tenant
	Waiting  int64      `json:"waiting"`  // ticks, at least; 0 where it refuses requests
	Since    *time.Time `json:"since"`
}

// Unmet is a workflow that is late, silent or without workers.
type Unmet struct {
	Workflow string          `json:"workflow"`
	Event    string          `json:"event"` // workflow.late, workflow.silent or workflow.no_workers
	Since    time.Time       `json:"since"`
	Data     json.RawMessage `json:"data"` // as in the event
}

// HeldWorkflow is a workflow that is held.
type HeldWorkflow struct {
	Workflow string    `json:"workflow"`
	Since    time.Time `json:"since"`
}

// Overviews serves the overview of a tenant over HTTP. Unopened may be nil.
type Overviews struct {
	DB    postgres.DB
	Ahead func(ctx context.Context, tenant tenants.ID) *forecast.Ahead
	Uses  func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)

	// Unopened returns the number from which chunks may be unopened, and the numbers of unopened chunks below it.
	Unopened func() (floor int64, stuck []int64)

	byWorkflow workflowCache
}

// Of returns the overview of a tenant.
func (o *Overviews) Of(ctx context.Context, tenant tenants.ID) (view Overview, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	if err := o.read(ctx, tenant, &view); err != nil {
		return view, err
	}
	if view.Lateness, err = o.lateness(ctx, tenant, view.At); err != nil {
		return view, err
	}
	if view.Schedules.Workflows, view.Schedules.Truncated, err = o.workflows(ctx, tenant); err != nil {
		return view, err
	}
	if view.Quotas, err = o.Uses(ctx, tenant); err != nil {
		return view, err
	}
	for _, name := range []string{"requests_per_second", "upserts_per_second", "leased"} {
		if use := view.Quotas[name]; use.Used != nil && *use.Used >= use.Limit {
			view.Throttling = append(view.Throttling, Throttle{By: name})
		}
	}
	view.Due = o.Ahead(ctx, tenant)
	return view, nil
}

// workflowCache caches the counts by workflow, which read all cohorts of a tenant. Counts that took long are cached for longer.
type workflowCache struct {
	once   sync.Once
	cached *lru.Cache[tenants.ID, countedWorkflows]
}

type countedWorkflows struct {
	at        time.Time
	took      time.Duration
	all       []WorkflowCounts
	truncated bool
}

const (
	tenantsCached  = 1000
	workflowsFresh = 5 * time.Second // or fifty times the duration of the count
	mostWorkflows  = 1000
)

func (o *Overviews) workflows(ctx context.Context, tenant tenants.ID) (all []WorkflowCounts, truncated bool, err error) {
	o.byWorkflow.once.Do(func() {
		if o.byWorkflow.cached, err = lru.New[tenants.ID, countedWorkflows](tenantsCached); err != nil {
			panic(err) // only a size that is not positive
		}
	})
	if known, ok := o.byWorkflow.cached.Get(tenant); ok && time.Since(known.at) < max(workflowsFresh, 50*known.took) {
		return known.all, known.truncated, nil
	}
	began := time.Now()
	byName, truncated, err := countWorkflows(ctx, o.DB, tenant)
	if err != nil {
		return nil, false, fmt.Errorf("count schedules by workflow: %w", err)
	}
	all = []WorkflowCounts{}
	for name, counts := range byName {
		counts.Active = max(0, counts.Active)
		all = append(all, WorkflowCounts{name, *counts})
	}
	slices.SortFunc(all, func(a, b WorkflowCounts) int {
		if n := b.sum() - a.sum(); n != 0 {
			return int(max(-1, min(1, n)))
		}
		return strings.Compare(a.Workflow, b.Workflow)
	})
	if len(all) > mostWorkflows {
		all, truncated = all[:mostWorkflows], true
	}
	o.byWorkflow.cached.Add(tenant, countedWorkflows{began, time.Since(began), all, truncated})
	return all, truncated, nil
}
