package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// BackfillParams ask for a tick at each nominal time from From on and before To, oldest first. Each tick runs when the one before has
// ended (buffer_all, the default), or all run at once (allow_all).
type BackfillParams struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Overlap string    `json:"overlap,omitempty"`
	DryRun  bool      `json:"dry_run,omitempty"`

	Pre version.Precondition `json:"-"` // of the schedule's version
}

// BackfillPlan is what a backfill would make: a tick at each of Count nominal times, except the Existing ones that have a tick
// already.
type BackfillPlan struct {
	Count    int        `json:"count"`
	Existing int        `json:"existing"`
	First    *time.Time `json:"first"`
	Last     *time.Time `json:"last"`
}

const mostBackfilled = 10_000

// Backfill is the result of a request for ticks of the past: the operation that makes them, or the plan of a dry run.
type Backfill struct {
	Operation *operations.Answer `json:"operation,omitempty"`
	Plan      *BackfillPlan      `json:"plan,omitempty"`
}

// backfilled is a schedule to backfill.
type backfilled struct {
	ID            int64
	Workflow, Key string
	Subject       string
	Version       int32
	Shard         int16
	CohortID      *int64
	Status        string
	Overlap       *string
	Defaults      []byte
	Rate          *int32 // of its workflow
	Stopped       bool   // its tenant is halted or suspended
}

const backfilledFrom = `
	SELECT s.id, s.workflow, s.key, COALESCE(s.subject, s.key) AS subject, s.version, s.shard, s.cohort_id, s.status, s.overlap, w.defaults, w.rate,
		` + tenants.Stopped + ` AS stopped
	FROM schedule s
	JOIN tenant t ON t.id = s.tenant_id
	LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow`

// Backfills make ticks of the past.
type Backfills struct {
	api        postgres.DB
	ids        ident.Codec
	quotas     record.Quotas
	operations *operations.Operations
	messages   *message.Messages
	horizon    *cluster.Horizon
	unopened   *chunk.Unopened
	sweep      *sweep.Sweeper
}

// NewBackfills returns Backfills.
func NewBackfills(c Config) *Backfills {
	return &Backfills{
		api: c.API, ids: c.IDs, quotas: c.Quotas, operations: c.Operations, messages: c.Messages, horizon: c.Horizon, unopened: c.Unopened, sweep: c.Sweep,
	}
}

// RegisterSteps registers the operation of a backfill. It is called once, before any operation runs.
func (bs *Backfills) RegisterSteps() {
	bs.operations.Register(record.BackfillKind, bs.backfillStep)
}

// Backfill begins an operation that makes a tick for each nominal time of a schedule in a span of the past. It makes no second tick
// for a time. A dry run returns only the plan. by is the caller's name in the audit. replayed reports that the result is that of an
// earlier request with the same Idempotency-Key.
func (bs *Backfills) Backfill(ctx context.Context, of policy.Name, p BackfillParams, by string, request once.Request) (b Backfill, replayed bool, err error) {
	quotas, err := bs.quotas(ctx, of.Tenant)
	if err != nil {
		return b, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, bs.api, func(tx pgx.Tx) error {
		b, replayed, err = once.Do(ctx, tx, int32(of.Tenant), request, func() (Backfill, error) {
			rows, _ := tx.Query(ctx, backfilledFrom+` WHERE s.tenant_id = $1 AND s.workflow = $2 AND s.key = $3`, of.Tenant, of.Workflow, of.Key) // CollectExactlyOneRow reports the error
			s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[backfilled])
			if errors.Is(err, pgx.ErrNoRows) {
				return Backfill{}, fault.NotFound("no schedule %q of workflow %q", of.Key, of.Workflow)
			}
			if err != nil {
				return Backfill{}, fmt.Errorf("read schedule: %w", err)
			}
			var now time.Time
			if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
				return Backfill{}, fmt.Errorf("read clock: %w", err)
			}
			return bs.beginBackfill(ctx, tx, s, p, change{of.Tenant, by, now.UTC(), quotas})
		})
		return err
	})
	return b, replayed, err
}

// check returns all faults of the params, as of now.
func (p BackfillParams) check(now time.Time, q tenants.Quotas) error {
	var errs []error
	kept := now.Add(-time.Duration(q.TickRetentionDays) * record.Day)
	switch {
	case p.From.IsZero():
		errs = append(errs, fault.Invalid("/from", "from is required"))
	case p.From.Before(kept):
		errs = append(errs, fault.Invalid("/from", "ticks are kept since %s", kept.Format(time.RFC3339)))
	}
	switch {
	case p.To.IsZero():
		errs = append(errs, fault.Invalid("/to", "to is required"))
	case p.To.After(now):
		errs = append(errs, fault.Invalid("/to", "to is in the future"))
	case !p.To.After(p.From):
		errs = append(errs, fault.Invalid("/to", "it is not after from"))
	}
	if p.Overlap != "" && p.Overlap != "buffer_all" && p.Overlap != "allow_all" {
		errs = append(errs, fault.Invalid("/overlap", "%q is neither buffer_all nor allow_all", p.Overlap))
	}
	return fault.Join(errs...)
}

// change holds the caller of a request, its time, and the quotas that it must keep to.
type change struct {
	tenant tenants.ID
	by     string
	now    time.Time
	quotas tenants.Quotas
}

// beginBackfill begins the operation of a backfill, or returns its plan if the request is a dry run.
func (bs *Backfills) beginBackfill(ctx context.Context, tx pgx.Tx, s *backfilled, p BackfillParams, a change) (b Backfill, err error) {
	if err := p.Pre.Check(true, int64(s.Version)); err != nil {
		return b, err
	}
	if err := p.check(a.now, a.quotas); err != nil {
		return b, err
	}
	timing, err := bs.backfillTiming(ctx, tx, a.tenant, s)
	if err != nil {
		return b, err
	}
	times := nominalTimes(timing, p.From.UTC(), p.To.UTC(), mostBackfilled+1)
	if len(times) > mostBackfilled {
		return b, fault.Fields(fault.Field{Pointer: "/to", Code: "too_many_ticks", Detail: fmt.Sprintf("there are more than %d nominal times in this span", mostBackfilled)})
	}
	if p.DryRun {
		plan, err := planBackfill(ctx, tx, a.tenant, s.ID, times)
		return Backfill{Plan: &plan}, err
	}
	op, err := bs.operations.Begin(ctx, tx, operations.Request{
		Tenant: a.tenant, Kind: record.BackfillKind, Subject: s.Subject, By: a.by, Total: new(int64(len(times))),
		Params: record.BackfillParams{ScheduleID: bs.ids.Schedule(s.ID), Workflow: s.Workflow, Key: s.Key, Subject: s.Subject, From: p.From.UTC(), To: p.To.UTC(), Overlap: cmp.Or(p.Overlap, "buffer_all")},
	})
	return Backfill{Operation: &op}, err
}

// backfillTiming returns the timing of a schedule. A timing that cannot be computed, or that has fixed_delay, has no nominal times to
// fill in; the error is a fault, 422.
func (bs *Backfills) backfillTiming(ctx context.Context, tx pgx.Tx, tenant tenants.ID, s *backfilled) (*calendar.Timing, error) {
	timings, _, err := bs.messages.TimingsOf(ctx, tx, tenant, []*record.Tick{{ScheduleID: s.ID, Version: s.Version, CohortID: s.CohortID, Shard: s.Shard}})
	if err != nil {
		return nil, err
	}
	if timings[0] == nil {
		return nil, fault.Invalid("", "the schedule's spec cannot be computed")
	}
	if _, follows := timings[0].FixedDelay(); follows {
		return nil, fault.Invalid("", "a schedule with fixed_delay cannot be backfilled: each time depends on the end of the tick before")
	}
	return timings[0], nil
}

// nominalTimes returns the first nominal times from from on and before to, at most most of them.
func nominalTimes(t *calendar.Timing, from, to time.Time, most int) (times []calendar.Tick) {
	after := from.Add(-time.Nanosecond)
	for len(times) < most {
		next, ok := t.Next(after)
		if !ok || !next.At.Before(to) {
			break
		}
		times, after = append(times, next), next.At
	}
	return times
}

// planBackfill counts which of the times have a tick already.
func planBackfill(ctx context.Context, tx pgx.Tx, tenant tenants.ID, schedule int64, times []calendar.Tick) (plan BackfillPlan, err error) {
	plan.Count = len(times)
	if len(times) == 0 {
		return plan, nil
	}
	at := make([]time.Time, len(times))
	for i, one := range times {
		at[i] = one.At
	}
	plan.First, plan.Last = &at[0], &at[len(at)-1]
	err = tx.QueryRow(ctx, `
		SELECT count(*)
		FROM tick
		WHERE tenant_id = $1 AND schedule_id = $2 AND nominal_at >= $3 AND nominal_at <= $4 AND seq = 0 AND nominal_at = ANY($5)`,
		tenant, schedule, plan.First, plan.Last, at).Scan(&plan.Existing)
	if err != nil {
		return plan, fmt.Errorf("count ticks: %w", err)
	}
	return plan, nil
}
