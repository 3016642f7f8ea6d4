package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// LeaseParams ask for up to Max ticks of workflows. The request waits for the first tick up to Wait. The worker must end each tick, or
// send a heartbeat, within Lease.
type LeaseParams struct {
	Workflows []string `json:"workflows"`
	Queues    []string `json:"queues,omitempty"`
	Max       *int     `json:"max,omitempty"`
	Wait      string   `json:"wait,omitempty"`
	Lease     string   `json:"lease,omitempty"`
	Worker    string   `json:"worker,omitempty" empty:"yes"`
}

const (
	mostLeased    = 1000
	shortestLease = 10 * time.Second
	longestLease  = 10 * time.Minute
	longestPoll   = time.Minute
)

// leaseRequest is a checked LeaseParams.
type leaseRequest struct {
	workflows, queues []string
	max               int
	wait, lease       time.Duration
	worker            string
	quota             int  // how many ticks the tenant's workers may hold
	exclusive         bool // the poll takes the lock of leaseRoom exclusively
	places            []ReadyPlace
}

func (p LeaseParams) read() (r leaseRequest, err error) {
	r = leaseRequest{workflows: p.Workflows, queues: p.Queues, max: 1, lease: time.Minute, worker: p.Worker}
	var errs []error
	if len(p.Workflows) == 0 || len(p.Workflows) > 100 {
		errs = append(errs, fault.Invalid("/workflows", "name 1 to 100 workflows"))
	}
	for i, name := range p.Workflows {
		errs = append(errs, policy.CheckName(fmt.Sprintf("/workflows/%d", i), "workflow", name))
	}
	if len(p.Queues) > 100 {
		errs = append(errs, fault.Invalid("/queues", "name at most 100 queues"))
	}
	for i, name := range p.Queues {
		errs = append(errs, policy.CheckName(fmt.Sprintf("/queues/%d", i), "queue", name))
	}
	if p.Max != nil {
		r.max = *p.Max
	}
	if r.max < 1 || r.max > mostLeased {
		errs = append(errs, fault.Invalid("/max", "%d is not between 1 and %d", r.max, mostLeased))
	}
	if p.Wait != "" {
		if r.wait, err = policy.Within("/wait", p.Wait, 0, longestPoll); err != nil {
			errs = append(errs, err)
		}
	}
	if p.Lease != "" {
		if r.lease, err = policy.Within("/lease", p.Lease, shortestLease, longestLease); err != nil {
			errs = append(errs, err)
		}
	}
	if len(p.Worker) > 256 || p.Worker != record.Valid(p.Worker) {
		errs = append(errs, fault.Invalid("/worker", "a worker's name is at most 256 bytes of text"))
	}
	return r, fault.Join(errs...)
}

// Lease leases ticks to a worker. It waits for the first one as long as the request allows, or until closing is closed. The answer is the
// JSON of {"ticks": […]}.
func (ls *Leases) Lease(ctx context.Context, tenant tenants.ID, p LeaseParams, closing <-chan struct{}) ([]byte, error) {
	r, err := p.read()
	if err != nil {
		return nil, err
	}
	quotas, err := ls.quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	held, err := countLeased(ctx, ls.api, tenant)
	if err != nil {
		return nil, err
	}
	if held >= quotas.Leased {
		f := fault.TooMany("leased allows %d ticks at a time", quotas.Leased)
		f.RetryAfter, f.Extra = time.Second, map[string]any{"quota": "leased", "limit": quotas.Leased, "used": held}
		return nil, f
	}
	ls.Ready.polls.add(tenant, r.workflows)
	r.quota, r.max = quotas.Leased, min(r.max, quotas.Leased-held)
	r.exclusive = r.alone(held)
	until := time.Now().Add(r.wait)
	for {
		// The poll is registered before it looks, so that a tick that comes in between wakes it.
		waiting, leave := ls.notifier.Wait(tenant, r.workflows, r.max)
		body, n, err := ls.leaseNow(ctx, tenant, r)
		left := time.Until(until)
		if err != nil || n > 0 || left <= 0 {
			leave()
			return body, err
		}
		ended, err := await(ctx, waiting.Woken, left, closing)
		leave()
		if err != nil {
			return nil, err
		}
		if ended {
			until = time.Now()
		}
	}
}

// await waits until a tick wakes the poll, at most for left. It reports whether closing is closed. It returns an error once the request
// ends or its credential is refused.
func await(ctx context.Context, woken <-chan struct{}, left time.Duration, closing <-chan struct{}) (ended bool, err error) {
	timer, check := time.NewTimer(left), time.NewTicker(tenants.AuthorityEvery)
	defer timer.Stop()
	defer check.Stop()
	for waiting := true; waiting; {
		select {
		case <-woken:
			waiting = false
		case <-timer.C:
			waiting = false
		case <-closing:
			ended, waiting = true, false
		case <-ctx.Done():
			return true, ctx.Err()
		case <-check.C:
		}
		if err := tenants.CheckAuthority(ctx); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// mostEnding limits how long one look may take out only ready ticks that are over. After that it returns without a tick.
const mostEnding = time.Second

const noTicks = `{"ticks":[]}`

// leaseNow leases ready ticks, and returns the answer and the number of ticks. It leaves out workflows whose defaults a newer program
// wrote.
func (ls *Leases) leaseNow(ctx context.Context, tenant tenants.ID, r leaseRequest) (body []byte, n int, err error) {
	query, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	hold := web.NewHold(ctx, web.MostPage)
	for began := time.Now(); ; {
		var limited bool
		r.places, limited, err = ls.anyReady(query, tenant, r)
		if err != nil || len(r.places) == 0 {
			return []byte(noTicks), 0, err
		}
		var l leased
		err = postgres.Retry(query, func() error {
			hold.Drop()
			return pgx.BeginFunc(query, ls.api, func(tx pgx.Tx) (err error) {
				if l, err = ls.leaseSome(query, tx, tenant, r, limited, hold); err != nil || len(l.ticks) == 0 {
					return err
				}
				l.timings, _, err = ls.messages.TimingsOf(query, tx, tenant, l.of()) // before the commit: if they cannot be read, nothing is leased
				return err
			})
		})
		if newer, ok := errors.AsType[*newerWorkflow](err); ok && len(r.workflows) > 1 {
			r.workflows = without(r.workflows, newer.name)
			continue
		}
		if errors.Is(err, errCrowded) {
			r.exclusive = true
			continue
		}
		if l.cut && len(l.ticks) > 0 {
			r.max = len(l.ticks) // so many fit into the answer
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if len(l.ticks) > 0 {
			sabotage.Crash("lease.committed")
			ls.metrics.leased.Add(float64(len(l.ticks)))
			ls.recordSpans(tenant, &l, began)
			return ls.leaseAnswer(tenant, l), len(l.ticks), nil
		}
		if l.taken == 0 || time.Since(began) > mostEnding {
			return []byte(noTicks), 0, nil
		}
	}
}

// leased holds the ticks that a worker gets.
type leased struct {
	id      int64
	ticks   []*record.Sendable
	timings []*calendar.Timing // in the order of the ticks; nil if it cannot be computed
	terms   map[string]record.WorkflowTerms
	taken   int // how many left the queues, including ticks that are over

	cut bool // nothing is leased: the ticks do not fit into one answer, and only these do
}

func (l *leased) of() []*record.Tick {
	ticks := make([]*record.Tick, len(l.ticks))
	for i, s := range l.ticks {
		ticks[i] = &s.Tick
	}
	return ticks
}

// leaseSome takes ticks out of the queues and leases those that are still to be delivered.
func (ls *Leases) leaseSome(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest, limited bool, hold *web.Hold) (l leased, err error) {
	if r.max, err = leaseRoom(ctx, tx, tenant, r); err != nil || r.max == 0 {
		return l, err
	}
	var limits map[string]int
	if limited {
		if limits, err = ls.finish.LockLimits(ctx, tx, tenant, r.workflows); err != nil {
			return l, err
		}
	}
	tries, err := takeLimited(ctx, tx, tenant, r, limits)
	if err != nil || len(tries) == 0 {
		return l, err
	}
	l.taken = len(tries)
	var b pgx.Batch
	record.QueueSendables(&b, tenant, tries, &l.ticks, hold)
	queueTerms(&b, tenant, r.workflows, &l.terms)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		l.cut = web.NoRoom(err)
		return l, fmt.Errorf("read ticks to lease: %w", err)
	}
	if l.ticks, err = parkHeld(ctx, tx, tenant, l.ticks, l.terms); err != nil || len(l.ticks) == 0 {
		return l, err
	}
	if l.ticks, err = ls.endUnwanted(ctx, tx, tenant, l.ticks, l.terms); err != nil || len(l.ticks) == 0 {
		return l, err
	}
	if err := occupy(ctx, tx, tenant, l.ticks, limits); err != nil {
		return l, err
	}
	l.id, err = insertLease(ctx, tx, tenant, r, l)
	sabotage.Crash("lease.before_commit")
	return l, err
}

// insertLease writes the lease of l.ticks. A tick is leased at most for the timeout of one attempt. If the timeouts differ, the lease ends
// with the shortest one, and a row of lease_beat gives each other tick its own end.
func insertLease(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest, l leased) (id int64, err error) {
	found := l.ticks
	lengths := make([]time.Duration, len(found))
	tries := make([]record.Try, len(found))
	shortest := r.lease
	for i, s := range found {
		tries[i] = record.Try{TickKey: s.RowKey(), Attempt: s.Attempt}
		lengths[i] = min(r.lease, l.terms[s.Workflow].With(s.Stated).Timeout)
		shortest = min(shortest, lengths[i])
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
		SELECT $1, $2, now, now + $3, $4, $5
		FROM `+postgres.Now+` AS now
		RETURNING id`, tenant, r.worker, shortest, len(found), packLease(tries)).Scan(&id)
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
		SELECT $1, slot, `+postgres.Now+` + length
		FROM unnest($2::smallint[], $3::interval[]) AS n (slot, length)`, id, slots, until)
	return id, err
}

// recordSpans makes a span of each leased tick, under the tick.
func (ls *Leases) recordSpans(tenant tenants.ID, l *leased, began time.Time) {
	if !ls.finish.Traces.On() {
		return
	}
	for _, s := range l.ticks {
		ls.finish.Traces.Record("lease", trace.Read(s.Trace), trace.Context{}, began,
			trace.Facts{Tenant: int32(tenant), Workflow: s.Workflow, Tick: s.RowKey(), Attempt: s.Attempt, Ticks: len(l.ticks)})
	}
}

func (ls *Leases) leaseAnswer(tenant tenants.ID, l leased) []byte {
	size := 700 * len(l.ticks)
	for _, s := range l.ticks {
		size += s.Held()
	}
	body := append(make([]byte, 0, size), `{"ticks":[`...)
	for i, s := range l.ticks {
		if l.timings[i] == nil {
			continue // the lease ends the attempt
		}
		if body[len(body)-1] == '}' {
			body = append(body, ',')
		}
		token := ls.messages.Seal(tenant, s.RowKey(), message.Token{Lease: l.id, Slot: int16(i), Attempt: s.Attempt})
		terms := l.terms[s.Workflow]
		stated := terms.With(s.Stated)
		m := ls.messages.Complete(message.Message{
			Tick: &s.Tick, Workflow: s.Workflow, WorkflowVersion: terms.Versions.At(s.FiredAt), Expired: s.Expired, MaxAttempts: s.Budget(stated.MaxAttempts),
			Timeout: stated.Timeout, Token: token, Content: s.Content,
		}, l.timings[i])
		body = m.AppendJSON(body)
	}
	return append(body, `]}`...)
}

// newerWorkflow is the error of a workflow whose defaults a newer program wrote. Its ticks stay ready for processes of that program.
type newerWorkflow struct {
	name  string
	cause error
}

func (e *newerWorkflow) Error() string { return "workflow " + e.name + ": " + e.cause.Error() }

func (e *newerWorkflow) Unwrap() error { return e.cause }

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(one string) bool { return one == name })
}

// endUnwanted ends ticks that are not to be leased any more, and returns the others. It ends those that were told to stop before a worker
// had them, and those that are later than they may be.
func (ls *Leases) endUnwanted(ctx context.Context, tx pgx.Tx, tenant tenants.ID, found []*record.Sendable, terms map[string]record.WorkflowTerms) (left []*record.Sendable, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return nil, err
	}
	var endings []finish.Ending
	for _, s := range found {
		if e, over := finish.Unwanted(s, terms[s.Workflow].Terms, now); over {
			endings = append(endings, e)
			continue
		}
		s.Expired = s.LateTo(now, terms[s.Workflow].With(s.Stated))
		left = append(left, s)
	}
	if len(endings) == 0 {
		return left, nil
	}
	_, err = ls.finish.End(ctx, tx, tenant, now.UTC(), endings)
	return left, err
}
