package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Put creates or replaces the schedule of a name, and returns it whole. made reports that it is new. If p says what is stored already,
// nothing is written.
func (s *Schedules) Put(ctx context.Context, of policy.Name, p Params, by string, pre web.Precondition) (out Schedule, made bool, err error) {
	tenant, workflow, key := of.Tenant, of.Workflow, of.Key
	if err := fault.Join(policy.CheckName("/workflow", "workflow", workflow), policy.CheckKey("/key", key)); err != nil {
		return out, false, err
	}
	quotas, err := s.Quotas(ctx, tenant)
	if err != nil {
		return out, false, err
	}
	d, err := p.read(quotas)
	if err := d.follow(ctx, s.Pool, tenant, key); err != nil {
		return out, false, err
	}
	if err := d.consult(ctx, s.Pool, s.Timings, tenant); err != nil {
		return out, false, err
	}
	_, specErr := cohorts.Compile(p.Spec, d.almanac.In(d.profile.Context(wholeSecond(time.Now()), cohorts.Identity(tenant, workflow, key))))
	if err := fault.Join(err, specErr); err != nil {
		return out, false, err
	}
	alone := func(ctx context.Context) error {
		out, made, err = s.putAlone(ctx, of, d, change{tenant: tenant, by: by, quotas: quotas}, pre)
		return err
	}
	it := &item{workflow: workflow, key: key, definition: d, pre: pre, whole: true, origin: tenants.OriginOf(ctx)}
	stored, err := s.puts.put(ctx, s, caller{tenant, by}, it, quotas, alone)
	if stored && err == nil {
		return it.shown, it.result == Inserted, nil
	}
	return out, made, err
}

// putAlone puts one checked schedule in a transaction of its own. The transaction sets the time of the change.
func (s *Schedules) putAlone(ctx context.Context, of policy.Name, d definition, c change, pre web.Precondition) (out Schedule, made bool, err error) {
	tenant := c.tenant
	ahead := s.Forecasts.Of(ctx, tenant)
	err = s.changeOf(ctx, tenant, of.Workflow, of.Key, cohorts.FollowsKey(d.spec), func(tx pgx.Tx, r *row, shard int16, now time.Time) error {
		c.now = now
		if err := pre.Check(r != nil, versionOf(r)); err != nil {
			return err
		}
		if err := d.consultHeld(ctx, tx, s.Timings, tenant); err != nil {
			return err
		}
		if err := d.follow(ctx, tx, tenant, of.Key); err != nil {
			return err
		}
		if made = r == nil; made {
			r, err = s.insert(ctx, tx, of, shard, d, c)
		} else {
			err = s.replace(ctx, tx, r, d, "put", c)
		}
		if err != nil {
			return err
		}
		out, err = r.answer(ctx, tx, s, ahead, c)
		return err
	})
	return out, made, err
}

// answer shows the row as schedule does, and warns of a crowded minute among those in which it fires.
func (r *row) answer(ctx context.Context, tx pgx.Tx, s *Schedules, ahead *forecast.Cached, c change) (Schedule, error) {
	tenant, q, now := c.tenant, c.quotas, c.now
	out, err := r.schedule(ctx, tx, s, tenant, now)
	if err != nil || r.CohortID == nil {
		return out, err
	}
	if t, err := r.timing(ctx, tx, s.Timings, tenant); err == nil {
		out.Warnings = append(out.Warnings, ahead.Peak(t, q, now)...)
	}
	out.Warnings = append(out.Warnings, s.Forecasts.Soft(tenant, ahead, q)...)
	return out, nil
}

// mayInsert returns a fault if the tenant's quotas have no room for a new schedule.
func (s *Schedules) mayInsert(ctx context.Context, tx pgx.Tx, r *row, t *calendar.Timing, c change) error {
	tenant, now, q := c.tenant, c.now, c.quotas
	room, stored, err := s.Forecasts.Room(ctx, tx, tenant, 1, q)
	if err != nil {
		return err
	}
	if room < 1 {
		return tenants.Exceeded("schedules", q.Schedules, stored)
	}
	if err := s.Forecasts.MayStore(ctx, tx, tenant, r.held()); err != nil {
		return err
	}
	if r.Status == Active {
		if err := s.Forecasts.Known(tenant).Fits(s.Timings, t, nil, q, now); err != nil {
			return err
		}
	}
	return nil
}

// insert stores a new schedule, and makes it a member of its cohort.
func (s *Schedules) insert(ctx context.Context, tx pgx.Tx, of policy.Name, shard int16, d definition, c change) (*row, error) {
	tenant, now := c.tenant, c.now
	r, t, err := s.newborn(of, shard, d, c, nil)
	if err != nil {
		return nil, err
	}
	if err := s.mayInsert(ctx, tx, r, t, c); err != nil {
		return nil, err
	}
	if r.Defaults, err = register(ctx, tx, tenant, of.Workflow); err != nil {
		return nil, err
	}
	if r.Status == Active {
		joined, err := s.arm(ctx, tx, r, t, now, c)
		if err != nil {
			return nil, err
		}
		if !joined {
			return nil, neverFires()
		}
	}
	var b pgx.Batch
	b.Queue(`
		WITH made AS (
			INSERT INTO schedule (tenant_id, workflow, key, shard, status, spec, payload, labels, note, anchor_at,
				ticks_left, cohort_id, spread, tzdata, created_at, updated_at, updated_by,
				overlap, missed, max_lateness_s, on_expired, pause_after_failures, queue, priority, timeout_s,
				max_attempts, keep_succeeded_s, keep_failed_s, paused_at, next_after)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $16,
				$17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $30, $31)
			ON CONFLICT ON CONSTRAINT schedule_workflow_key DO NOTHING
			RETURNING id
		), state AS (
			INSERT INTO schedule_state (tenant_id, schedule_id, delay_left) SELECT $1, id, $32::int FROM made
		), joined AS (
			INSERT INTO member (cohort_id, spread, schedule_id, tenant_id, from_at, until_at)
			SELECT $12, $13, id, $1, $28, $29 FROM made WHERE $12::bigint IS NOT NULL
		), stored AS (
			INSERT INTO tally_delta (tenant_id, cohort_id, n) VALUES ($1, $33, $34)
		)
		SELECT id FROM made`,
		tenant, of.Workflow, of.Key, shard, r.Status, r.Spec, r.Payload, r.Labels, r.Note, r.AnchorAt,
		r.TicksLeft, r.CohortID, r.Spread, r.TZData, now, c.by,
		r.Overlap, r.Stored.Missed, r.MaxLateness, r.OnExpired, r.PauseAfterFailures, r.Queue, r.Priority, r.Timeout,
		r.MaxAttempts, r.KeepSucceeded, r.KeepFailed, r.FromAt, r.UntilAt, r.PausedAt, r.coming(t, now), r.DelayLeft,
		forecast.AllBytes, r.held())
	if err := tenants.QueueAudit(ctx, &b, tenant, c.by, r.audit("put", nil, r.audited())); err != nil {
		return nil, err
	}
	results := tx.SendBatch(ctx, &b)
	err = results.QueryRow().Scan(&r.ID)
	if closed := results.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errRaced
	}
	return r, err
}

// replace writes what differs, and retimes the schedule from now where its timing does.
func (s *Schedules) replace(ctx context.Context, tx pgx.Tx, r *row, d definition, action string, by change) error {
	tenant, now := by.tenant, by.now
	before, err := r.timing(ctx, tx, s.Timings, tenant)
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
		return err
	}
	next, was := r.coming(before, now), r.audited()
	c, err := s.redefine(r, d, before, by, nil)
	if err != nil || !c.differs {
		return err
	}
	if c.moves {
		if err := s.afford(tenant, r, c, before, by.quotas, now); err != nil {
			return err
		}
		if err := r.leave(ctx, tx, s, tenant, before, now); err != nil {
			return err
		}
		c.recount(r, d)
		if err := s.rearm(ctx, tx, r, c.timing, by); err != nil {
			return err
		}
	}
	return s.update(ctx, tx, r, edit{action, next, was, c.timing}, by)
}

// rearm makes a schedule that left its cohort fire again: from now on, or from the end of its pause. A schedule that is paused for good
// stays out.
func (s *Schedules) rearm(ctx context.Context, tx pgx.Tx, r *row, t *calendar.Timing, c change) error {
	if r.Status == Active {
		return s.rejoin(ctx, tx, r, t, c.now, c)
	}
	if r.PausedUntil == nil {
		return nil
	}
	_, err := s.rejoined(ctx, tx, r, t, r.PausedUntil.Add(-time.Second), c)
	return err
}

// arm joins the cohort of its timing from after a moment on; it reports false where no nominal time is left.
func (s *Schedules) arm(ctx context.Context, tx pgx.Tx, r *row, t *calendar.Timing, after time.Time, c change) (bool, error) {
	terms, err := policy.Resolve(r.Stored, r.Defaults)
	if err != nil {
		return false, err
	}
	joined, err := r.join(ctx, tx, s, armed{t, terms.Missed, after}, c)
	if err != nil {
		return false, fmt.Errorf("join cohort: %w", err)
	}
	return joined, nil
}
