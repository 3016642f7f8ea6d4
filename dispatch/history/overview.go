package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/tenants"
	lru "github.com/hashicorp/golang-lru/v2"
)

// Overview is how a tenant's firing stands. What it counts is kept as counts, or is counted up to a bound: no schedule and
// no tick is read but a sample of those that were handed out lately.
type Overview struct {
	At         time.Time              `json:"at"`
	Firing     Firing                 `json:"firing"`
	Schedules  ScheduleCounts         `json:"schedules"`
	Due        *forecast.Ahead        `json:"due"` // null until it is reckoned
	Backlog    Backlog                `json:"backlog"`
	Running    RunningCounts          `json:"running"`
	Lateness   Lateness               `json:"lateness"`
	Failures   FailureCounts          `json:"failures"`
	Throttling []Throttle             `json:"throttling"`
	Quotas     map[string]tenants.Use `json:"quotas"`
}

// ScheduleCounts are how many schedules there are, a second old at most; by workflow they are some seconds old.
type ScheduleCounts struct {
	Total int64 `json:"total"`
	StateCounts
	Workflows []WorkflowCounts `json:"workflows"` // those with most schedules, at most a thousand
	Truncated bool             `json:"truncated"` // there are more workflows, or more timings than are looked at
}

// StateCounts are schedules by state. One whose pause has ended by itself is active, or completed where nothing is left.
type StateCounts struct {
	Active      int64 `json:"active"`
	Paused      int64 `json:"paused"`
	Completed   int64 `json:"completed"`
	Quarantined int64 `json:"quarantined"`
}

func (c *StateCounts) add(state string, n int64) {
	switch state {
	case schedules.Paused, restingState:
		c.Paused += n
	case schedules.Completed:
		c.Completed += n
	case schedules.Quarantined:
		c.Quarantined += n
	}
}

// wake counts schedules that are paused no longer, though nobody has changed them since.
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

// Backlog is what is due and not on its way.
type Backlog struct {
	Unswept   int64      `json:"unswept"`   // ticks that are due and wait for the sweep, or for the tenant's turn
	Unopened  int64      `json:"unopened"`  // that are swept and not handed out
	OldestAt  *time.Time `json:"oldest_at"` // nominal time of the oldest of these
	Ready     int64      `json:"ready"`     // handed out, and waiting for a worker to lease them
	Held      int64      `json:"held"`      // to be sent at a later moment: retries, and what an endpoint or a slot holds up
	Buffered  int64      `json:"buffered"`  // that wait for another tick of their schedule to end
	Truncated bool       `json:"truncated"` // some of the counts are of the first ones only: there are more
}

// RunningCounts are ticks that somebody has.
type RunningCounts struct {
	Pushed  int64 `json:"pushed"`  // of chunks that are being pushed
	Awaited int64 `json:"awaited"` // taken with 202, and not finished
	Leased  int64 `json:"leased"`
}

// Lateness is from the nominal times of ticks to their being handed out, of a sample of those of the last hour; null
// where none was handed out.
type Lateness struct {
	P50   *int64 `json:"p50_ms"`
	P99   *int64 `json:"p99_ms"`
	Most  *int64 `json:"max_ms"`
	Ticks int    `json:"ticks"` // in the sample
}

// FailureCounts are what failed.
type FailureCounts struct {
	DeadLetters int64           `json:"dead_letters"`
	LastHour    int64           `json:"last_hour"` // of these, how many failed for good within the last hour
	Retrying    int64           `json:"retrying"`  // ticks that wait for another attempt
	Endpoints   []EndpointState `json:"endpoints"` // that are held or disabled
	Truncated   bool            `json:"truncated"` // as in Backlog
}

// EndpointState is an endpoint that nothing is pushed to.
type EndpointState struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// Throttle is a limit that holds something up just now.
type Throttle struct {
	By       string     `json:"by"`       // the name of the quota, or max_running
	Workflow string     `json:"workflow"` // whose max_running; empty: of the tenant
	Waiting  int64      `json:"waiting"`  // ticks, at least; 0 where it refuses requests
	Since    *time.Time `json:"since"`
}

// Overviews answer how tenants' firing stands over HTTP.
type Overviews struct {
	DB    postgres.DB
	Ahead func(ctx context.Context, tenant tenants.ID) *forecast.Ahead
	Uses  func(ctx context.Context, tenant tenants.ID) (map[string]tenants.Use, error)

	// Unopened tells from which number on there are unopened chunks, and the numbers of those below it: see Dispatch. It may be nil.
	Unopened func() (floor int64, stuck []int64)

	kept workflowCache
}

// Of is the overview of one tenant.
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

// workflowCache keeps the counts by workflow, which go over all cohorts of a tenant: the more they cost, the longer.
type workflowCache struct {
	once sync.Once
	kept *lru.Cache[tenants.ID, countedWorkflows]
}

type countedWorkflows struct {
	at        time.Time
	took      time.Duration
	all       []WorkflowCounts
	truncated bool
}

const (
	workflowsKept  = 1000            // tenants
	workflowsFresh = 5 * time.Second // or fifty times what it cost to count them
	mostWorkflows  = 1000
)

func (o *Overviews) workflows(ctx context.Context, tenant tenants.ID) (all []WorkflowCounts, truncated bool, err error) {
	o.kept.once.Do(func() {
		if o.kept.kept, err = lru.New[tenants.ID, countedWorkflows](workflowsKept); err != nil {
			panic(err) // its size is no more than zero
		}
	})
	if known, ok := o.kept.kept.Get(tenant); ok && time.Since(known.at) < max(workflowsFresh, 50*known.took) {
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
	o.kept.kept.Add(tenant, countedWorkflows{began, time.Since(began), all, truncated})
	return all, truncated, nil
}
