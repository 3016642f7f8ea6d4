package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// LeaseParams ask for ticks of workflows: up to Max, waiting for the first up to Wait, each to be ended within Lease.
type LeaseParams struct {
	Workflows []string `json:"workflows"`
	Queues    []string `json:"queues,omitempty"`
	Max       *int     `json:"max,omitempty"`
	Wait      string   `json:"wait,omitempty"`
	Lease     string   `json:"lease,omitempty"`
	Worker    string   `json:"worker,omitempty"`
}

const (
	mostLeased    = 1000
	shortestLease = 10 * time.Second
	longestLease  = 10 * time.Minute
	longestPoll   = time.Minute
	pollEvery     = 2 * time.Second // a poll looks by itself, should a notification be lost
)

// leaseRequest are checked LeaseParams.
type leaseRequest struct {
	workflows, queues []string
	max               int
	wait, lease       time.Duration
	worker            string
}

func (p LeaseParams) read() (r leaseRequest, err error) {
	r = leaseRequest{workflows: p.Workflows, queues: p.Queues, max: 1, lease: time.Minute, worker: p.Worker}
	var errs []error
	if len(p.Workflows) == 0 || len(p.Workflows) > 100 {
		errs = append(errs, fault.Invalid("/workflows", "name 1 to 100 workflows"))
	}
	for i, name := range p.Workflows {
		errs = append(errs, schedules.CheckName(fmt.Sprintf("/workflows/%d", i), "workflow", name))
	}
	if len(p.Queues) > 100 {
		errs = append(errs, fault.Invalid("/queues", "name at most 100 queues"))
	}
	for i, name := range p.Queues {
		errs = append(errs, schedules.CheckName(fmt.Sprintf("/queues/%d", i), "queue", name))
	}
	if p.Max != nil {
		r.max = *p.Max
	}
	if r.max < 1 || r.max > mostLeased {
		errs = append(errs, fault.Invalid("/max", "%d is not between 1 and %d", r.max, mostLeased))
	}
	if p.Wait != "" {
		if r.wait, err = schedules.Within("/wait", p.Wait, 0, longestPoll); err != nil {
			errs = append(errs, err)
		}
	}
	if p.Lease != "" {
		if r.lease, err = schedules.Within("/lease", p.Lease, shortestLease, longestLease); err != nil {
			errs = append(errs, err)
		}
	}
	if len(p.Worker) > 256 || p.Worker != valid(p.Worker) {
		errs = append(errs, fault.Invalid("/worker", "a worker's name is at most 256 bytes of text"))
	}
	return r, fault.Join(errs...)
}

// Lease hands ticks to a worker, waiting for the first one as long as the request allows; closing ends the wait. The
// answer is the JSON of {"ticks": […]}.
func (d *Dispatch) Lease(ctx context.Context, tenant tenants.ID, p LeaseParams, closing <-chan struct{}) ([]byte, error) {
	r, err := p.read()
	if err != nil {
		return nil, err
	}
	quotas, err := d.Quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	held, err := d.Leased(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if held >= quotas.Leased {
		f := fault.New(http.StatusTooManyRequests, "rate_limited", "leased allows %d ticks at a time", quotas.Leased)
		f.RetryAfter, f.Extra = time.Second, map[string]any{"quota": "leased", "limit": quotas.Leased, "used": held}
		return nil, f
	}
	r.max = min(r.max, quotas.Leased-held)
	until := time.Now().Add(r.wait)
	for {
		// Registered before it looks, so that what comes in between wakes it.
		waiting, leave := d.hub.wait(tenant, r.workflows, r.max)
		body, n, err := d.leaseNow(ctx, tenant, r)
		left := time.Until(until)
		if err != nil || n > 0 || left <= 0 {
			leave()
			return body, err
		}
		timer := time.NewTimer(min(left, pollEvery))
		select {
		case <-waiting.woken:
		case <-timer.C:
		case <-closing:
			until = time.Now()
		case <-ctx.Done():
			until = time.Now()
		}
		timer.Stop()
		leave()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

const noTicks = `{"ticks":[]}`

// leaseNow leases what is ready, and writes the answer.
func (d *Dispatch) leaseNow(ctx context.Context, tenant tenants.ID, r leaseRequest) (body []byte, n int, err error) {
	query, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	some, limited, err := d.anyReady(query, tenant, r)
	if err != nil || !some {
		return []byte(noTicks), 0, err
	}
	var found []*sendable
	var lease int64
	err = postgres.Retry(query, func() error {
		return pgx.BeginFunc(query, d.API, func(tx pgx.Tx) error {
			var limits map[string]int
			if limited {
				if limits, err = lockLimits(query, tx, tenant, r.workflows); err != nil {
					return err
				}
			}
			tries, err := takeLimited(query, tx, tenant, r, limits)
			if err != nil || len(tries) == 0 {
				found = nil
				return err
			}
			if found, err = sendables(query, tx, tenant, tries); err != nil {
				return err
			}
			if found, err = d.endStopped(query, tx, tenant, found); err != nil || len(found) == 0 {
				return err
			}
			if err := occupy(query, tx, tenant, found, limits); err != nil {
				return err
			}
			lease, err = insertLease(query, tx, tenant, r, found)
			return err
		})
	})
	if err != nil || len(found) == 0 {
		return []byte(noTicks), 0, err
	}
	d.Metrics.leased.Add(float64(len(found)))
	body, err = d.leaseAnswer(query, tenant, lease, found)
	return body, len(found), err
}

// anyReady looks without a transaction whether anything is ready: most polls find nothing. It tells too whether any of the
// workflows has a max_running.
func (d *Dispatch) anyReady(ctx context.Context, tenant tenants.ID, r leaseRequest) (some, limited bool, err error) {
	err = d.API.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM ready
			WHERE tenant_id = $1 AND workflow = ANY($2) AND (cardinality($3::text[]) = 0 OR queue = ANY($3))),
			EXISTS (SELECT FROM workflow WHERE tenant_id = $1 AND name = ANY($2) AND max_running IS NOT NULL)`,
		tenant, r.workflows, named(r.queues)).Scan(&some, &limited)
	return some, limited, err
}

func named(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// takeReady takes ready ticks out of the queues: by priority, and then as they came.
func takeReady(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest) ([]try, error) {
	rows, err := tx.Query(ctx, `
		WITH RECURSIVE named AS (
			SELECT w.workflow, q.queue
			FROM unnest($2::text[]) AS w (workflow) CROSS JOIN unnest($3::text[]) AS q (queue)
		), every (workflow, queue) AS (
			SELECT w.workflow, (SELECT min(queue) FROM ready WHERE tenant_id = $1 AND ready.workflow = w.workflow)
			FROM unnest($2::text[]) AS w (workflow)
			WHERE cardinality($3::text[]) = 0
			UNION ALL
			SELECT e.workflow, (SELECT min(queue) FROM ready WHERE tenant_id = $1 AND ready.workflow = e.workflow AND ready.queue > e.queue)
			FROM every e
			WHERE e.queue IS NOT NULL
		), queues AS (
			SELECT workflow, queue FROM named
			UNION ALL
			SELECT workflow, queue FROM every WHERE queue IS NOT NULL
		), next AS (
			SELECT r.workflow, r.queue, r.priority, r.id
			FROM queues q
			CROSS JOIN LATERAL (
				SELECT workflow, queue, priority, id
				FROM ready
				WHERE tenant_id = $1 AND ready.workflow = q.workflow AND ready.queue = q.queue
				ORDER BY priority, id
				LIMIT $4
				FOR UPDATE SKIP LOCKED
			) r
			ORDER BY r.priority, r.id
			LIMIT $4
		)
		DELETE FROM ready
		USING next
		WHERE ready.tenant_id = $1 AND ready.workflow = next.workflow AND ready.queue = next.queue
			AND ready.priority = next.priority AND ready.id = next.id
		RETURNING ready.schedule_id, ready.nominal_at, ready.seq, ready.attempt`,
		tenant, r.workflows, named(r.queues), r.max)
	if err != nil {
		return nil, fmt.Errorf("take ready ticks: %w", err)
	}
	var tries []try
	var t try
	_, err = pgx.ForEachRow(rows, []any{&t.Schedule, &t.At, &t.Seq, &t.Attempt}, func() error {
		t.At = t.At.UTC()
		tries = append(tries, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take ready ticks: %w", err)
	}
	return tries, nil
}

// insertLease keeps what was leased. A tick is leased no longer than one attempt at it may take; where that differs,
// the lease ends with the shortest, and the others have an end of their own.
func insertLease(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest, found []*sendable) (id int64, err error) {
	lengths := make([]time.Duration, len(found))
	tries := make([]try, len(found))
	shortest := r.lease
	for i, s := range found {
		tries[i] = try{TickKey: s.key(), Attempt: s.Attempt}
		lengths[i] = min(r.lease, seconds(or(s.Timeout, int32(schedules.DefaultTimeout/time.Second))))
		shortest = min(shortest, lengths[i])
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
		SELECT $1, $2, now, now + $3, $4, $5
		FROM clock_timestamp() AS now
		RETURNING id`, tenant, r.worker, shortest, len(found), packTries(tries)).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("insert lease: %w", err)
	}
	var slots []int16
	var until []time.Duration
	for i, length := range lengths {
		if length > shortest {
			slots, until = append(slots, int16(i)), append(until, length)
		}
	}
	if len(slots) == 0 {
		return id, nil
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO lease_beat (lease_id, slot, until_at)
		SELECT $1, slot, clock_timestamp() + length
		FROM unnest($2::smallint[], $3::interval[]) AS n (slot, length)`, id, slots, until)
	return id, err
}

func (d *Dispatch) leaseAnswer(ctx context.Context, tenant tenants.ID, lease int64, found []*sendable) ([]byte, error) {
	ticks := make([]*tick, len(found))
	for i, s := range found {
		ticks[i] = &s.tick
	}
	timings, err := d.timingsOf(ctx, tenant, ticks)
	if err != nil {
		return nil, err
	}
	versions, attempts, err := d.workflowsOf(ctx, tenant, found)
	if err != nil {
		return nil, err
	}
	body := append(make([]byte, 0, 700*len(found)), `{"ticks":[`...)
	for i, s := range found {
		if timings[i] == nil {
			continue // its lease ends, and its attempts with it
		}
		if body[len(body)-1] == '}' {
			body = append(body, ',')
		}
		token := d.seal(tenant, s.key(), leaseToken{lease, int16(i), s.Attempt})
		m := d.message(&s.tick, timings[i], token, s.Workflow, versions[s.Workflow], s.Key, s.budget(or(s.MaxAttempts, attempts[s.Workflow])), s.Own)
		body = m.appendJSON(body)
	}
	return append(body, `]}`...), nil
}

// workflowsOf reads the versions and the default attempts of the workflows of ticks.
func (d *Dispatch) workflowsOf(ctx context.Context, tenant tenants.ID, found []*sendable) (versions map[string]string, attempts map[string]int16, err error) {
	versions, attempts = map[string]string{}, map[string]int16{}
	var names []string
	for _, s := range found {
		if _, seen := attempts[s.Workflow]; !seen {
			names, attempts[s.Workflow] = append(names, s.Workflow), schedules.DefaultMaxAttempts
		}
	}
	rows, err := d.API.Query(ctx, `SELECT name, version, defaults FROM workflow WHERE tenant_id = $1 AND name = ANY($2)`, tenant, names)
	if err != nil {
		return nil, nil, fmt.Errorf("read workflows: %w", err)
	}
	var name string
	var version *string
	var defaults []byte
	_, err = pgx.ForEachRow(rows, []any{&name, &version, &defaults}, func() error {
		terms, err := schedules.DefaultTerms(defaults)
		versions[name], attempts[name] = or(version, ""), int16(terms.MaxAttempts)
		return err
	})
	return versions, attempts, err
}

// Leased is how many ticks a tenant's workers hold.
func (d *Dispatch) Leased(ctx context.Context, tenant tenants.ID) (n int, err error) {
	err = d.API.QueryRow(ctx, `SELECT COALESCE(sum(unended), 0)::int FROM lease WHERE tenant_id = $1 AND until_at > clock_timestamp()`, tenant).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count leased ticks: %w", err)
	}
	return n, nil
}
