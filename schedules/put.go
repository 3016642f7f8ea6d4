package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// errRaced is another's change between our look and our lock: the transaction is tried again.
var errRaced = errors.New("the schedule changed while it was read")

const mostRaces = 5

// Put makes the schedule of (workflow, key) be what p says, and answers it whole; made tells that there was none.
// Where p says what is stored already, nothing is written.
func (s *Schedules) Put(ctx context.Context, tenant tenants.ID, workflow, key string, p Params, by string, pre web.Precondition) (out Schedule, made bool, err error) {
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
		out, made, err = s.putAlone(ctx, tenant, workflow, key, d, by, quotas, pre)
		return err
	}
	it := &item{workflow: workflow, key: key, definition: d, pre: pre, whole: true, origin: tenants.OriginOf(ctx)}
	stored, err := s.puts.put(ctx, s, caller{tenant, by}, it, quotas, alone)
	if stored && err == nil {
		return it.shown, it.result == Inserted, nil
	}
	return out, made, err
}

// putAlone is a Put in a transaction of its own, of what was checked.
func (s *Schedules) putAlone(ctx context.Context, tenant tenants.ID, workflow, key string, d definition, by string, quotas tenants.Quotas, pre web.Precondition) (out Schedule, made bool, err error) {
	ahead := s.Forecasts.Of(ctx, tenant)
	err = s.changeOf(ctx, tenant, workflow, key, cohorts.FollowsKey(d.spec), func(tx pgx.Tx, r *row, shard int16, now time.Time) error {
		if err := pre.Check(r != nil, versionOf(r)); err != nil {
			return err
		}
		if err := d.consultHeld(ctx, tx, s.Timings, tenant); err != nil {
			return err
		}
		if err := d.follow(ctx, tx, tenant, key); err != nil {
			return err
		}
		if made = r == nil; made {
			r, err = s.insert(ctx, tx, tenant, shard, workflow, key, d, by, now, quotas)
		} else {
			err = s.replace(ctx, tx, tenant, r, d, "put", by, now, quotas)
		}
		if err != nil {
			return err
		}
		out, err = r.answer(ctx, tx, s, tenant, ahead, quotas, now)
		return err
	})
	return out, made, err
}

// answer shows the row as schedule does, and warns of a crowded minute among those in which it fires.
func (r *row) answer(ctx context.Context, tx pgx.Tx, s *Schedules, tenant tenants.ID, ahead *forecast.Cached, q tenants.Quotas, now time.Time) (Schedule, error) {
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

func versionOf(r *row) int64 {
	if r == nil {
		return 0
	}
	return int64(r.Version)
}

// change runs fn in a transaction that holds the shared lock of the schedule's shard, with the schedule's row locked
// (nil where there is none) and the database's clock read under the lock.
func (s *Schedules) change(ctx context.Context, tenant tenants.ID, workflow, key string, fn func(tx pgx.Tx, r *row, shard int16, now time.Time) error) error {
	return s.changeOf(ctx, tenant, workflow, key, false, fn)
}

// changeOf is change of a schedule that may begin to follow its key: the profile of the key stands until the transaction
// ends.
func (s *Schedules) changeOf(ctx context.Context, tenant tenants.ID, workflow, key string, follows bool, fn func(tx pgx.Tx, r *row, shard int16, now time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	spread, err := s.Forecasts.ShardsFor(ctx, tenant)
	if err != nil {
		return err
	}
	for range mostRaces {
		err = postgres.Retry(ctx, func() error { // what it hands out may meet what ends a tick, which locks in another order
			return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
				if follows {
					if err := cohorts.LockKeys(ctx, tx, tenant, cohorts.ToFollow, key); err != nil {
						return err
					}
				}
				r, shard, now, err := lockRow(ctx, tx, tenant, workflow, key, cohorts.ShardFor(tenant, spread, workflow, key))
				if err != nil {
					return err
				}
				return fn(tx, r, shard, now)
			})
		})
		if !errors.Is(err, errRaced) {
			return err
		}
	}
	busy := fault.Unavailable("busy", "the schedule is being changed by others; try again")
	busy.RetryAfter = time.Second
	return busy
}

func lockRow(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflow, key string, newborn int16) (r *row, shard int16, now time.Time, err error) {
	var b pgx.Batch
	b.Queue(`
		SELECT shard, pg_advisory_xact_lock_shared($5, shard)::text
		FROM (SELECT COALESCE((SELECT shard FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = $3), $4::smallint) AS shard) s`,
		tenant, workflow, key, newborn, cohorts.ShardLocks)
	// In a statement of its own: one that waited for the lock would show the others' rows as they were before it.
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = $3 FOR UPDATE`, tenant, workflow, key)
	b.Queue(oneRow, tenant, workflow, key)
	b.Queue(`SELECT ` + postgres.Now)
	results := tx.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	var nothing *string
	if err := results.QueryRow().Scan(&shard, &nothing); err != nil {
		return nil, 0, now, fmt.Errorf("lock shard: %w", err)
	}
	var locked int64
	if err := results.QueryRow().Scan(&locked); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, now, fmt.Errorf("lock schedule: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		return nil, 0, now, fmt.Errorf("read schedule: %w", err)
	}
	if r, err = collectRow(rows); err != nil {
		return nil, 0, now, fmt.Errorf("read schedule: %w", err)
	}
	if err := results.QueryRow().Scan(&now); err != nil {
		return nil, 0, now, fmt.Errorf("read clock: %w", err)
	}
	if r == nil {
		return nil, shard, now.UTC(), nil
	}
	if r.Shard != shard || r.ID != locked { // made anew since we waited for the one that was deleted
		return nil, 0, now, errRaced
	}
	r.wake(now)
	return r, shard, now.UTC(), nil
}

// newborn is the row of a schedule that there is none of yet, and its timing. It is not placed in a cohort.
func (s *Schedules) newborn(tenant tenants.ID, shard int16, workflow, key string, d definition, by string, now time.Time, q tenants.Quotas, m *memo) (*row, *calendar.Timing, error) {
	r := &row{
		Workflow: workflow, Key: key, Version: 1, Shard: shard, Status: Active,
		AnchorAt: wholeSecond(now), CreatedAt: now, UpdatedAt: now, UpdatedBy: by, TZData: calendar.InForce().Version(),
	}
	if d.status == Paused {
		r.Status, r.PausedAt = Paused, &now
	}
	r.define(d)
	r.TicksLeft = ticksOf(d.spec)
	t, err := s.timed(tenant, r, d, q, now, m)
	return r, t, err
}

func (s *Schedules) insert(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shard int16, workflow, key string, d definition, by string, now time.Time, q tenants.Quotas) (*row, error) {
	r, t, err := s.newborn(tenant, shard, workflow, key, d, by, now, q, nil)
	if err != nil {
		return nil, err
	}
	room, stored, err := s.Forecasts.Room(ctx, tx, tenant, 1, q)
	if err != nil {
		return nil, err
	}
	if room < 1 {
		return nil, tenants.Exceeded("schedules", q.Schedules, stored)
	}
	if err := s.Forecasts.MayStore(ctx, tx, tenant, r.held()); err != nil {
		return nil, err
	}
	if r.Status == Active {
		if err := s.Forecasts.Known(tenant).Fits(s.Timings, t, nil, q, now); err != nil {
			return nil, err
		}
	}
	if r.Defaults, err = register(ctx, tx, tenant, workflow); err != nil {
		return nil, err
	}
	if r.Status == Active {
		joined, err := s.arm(ctx, tx, tenant, r, t, now, now)
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
		tenant, workflow, key, shard, r.Status, r.Spec, r.Payload, r.Labels, r.Note, r.AnchorAt,
		r.TicksLeft, r.CohortID, r.Spread, r.TZData, now, by,
		r.Overlap, r.Stored.Missed, r.MaxLateness, r.OnExpired, r.PauseAfterFailures, r.Queue, r.Priority, r.Timeout,
		r.MaxAttempts, r.KeepSucceeded, r.KeepFailed, r.FromAt, r.UntilAt, r.PausedAt, r.coming(t, now), r.DelayLeft,
		forecast.AllBytes, r.held())
	if err := tenants.QueueAudit(ctx, &b, tenant, by, r.audit("put", nil, r.audited())); err != nil {
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
func (s *Schedules) replace(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r *row, d definition, action, by string, now time.Time, q tenants.Quotas) error {
	before, err := r.timing(ctx, tx, s.Timings, tenant)
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
		return err
	}
	next, was := r.coming(before, now), r.audited()
	c, err := s.redefine(tenant, r, d, before, now, q, nil)
	if err != nil || !c.differs {
		return err
	}
	if c.moves {
		if err := s.afford(tenant, r, c, before, q, now); err != nil {
			return err
		}
		if err := r.leave(ctx, tx, s, tenant, before, now); err != nil {
			return err
		}
		c.recount(r, d)
		if err := s.rearm(ctx, tx, tenant, r, c.timing, now); err != nil {
			return err
		}
	}
	return s.update(ctx, tx, tenant, r, next, c.timing, by, now, action, was)
}

// change is what a definition makes of a stored row.
type change struct {
	differs     bool             // else nothing is to be written
	moves       bool             // it leaves its cohort, and is armed again
	respecified bool             // its spec is another
	timing      *calendar.Timing // the one that it has from now on
}

// afford holds what a changed row fires from now on to the quota of projected ticks. The row is in its old cohort still.
func (s *Schedules) afford(tenant tenants.ID, r *row, c change, before *calendar.Timing, q tenants.Quotas, now time.Time) error {
	if r.Status != Active {
		return nil
	}
	if r.CohortID == nil {
		before = nil
	}
	return s.Forecasts.Known(tenant).Fits(s.Timings, c.timing, before, q, now)
}

// recount has a schedule with a limit of ticks count them anew once its spec is another.
func (c change) recount(r *row, d definition) {
	if c.respecified {
		r.TicksLeft = ticksOf(d.spec)
	}
}

// redefine puts a definition into a stored row, and says what that means. Before is the row's timing until now, nil where
// it cannot be computed. Nothing is written, and the row keeps its place in its cohort.
func (s *Schedules) redefine(tenant tenants.ID, r *row, d definition, before *calendar.Timing, now time.Time, q tenants.Quotas, m *memo) (c change, err error) {
	was := *r
	r.define(d)
	c.respecified = was.Spec != r.Spec
	switch {
	case was.Status == Completed && !c.respecified: // what has been fired is not fired again
	case d.status != "" && d.status != was.Status:
		r.setStatus(d.status, now)
	case was.Status == Completed || was.Status == Quarantined:
		r.setStatus(Active, now)
	}
	if was.sameDefinition(r) {
		return c, nil
	}
	c.differs, c.timing = true, before
	if c.respecified || c.timing == nil {
		if c.timing, err = s.timed(tenant, r, d, q, now, m); err != nil {
			return c, err
		}
		r.TZData = calendar.InForce().Version()
		if r.MovedUntil != nil {
			c.timing = r.carry(&was, c.timing, tenant, now)
		}
	}
	terms, err := policy.Resolve(r.Stored, r.Defaults)
	if err != nil {
		return c, err
	}
	moved := before == nil || before.Hash() != c.timing.Hash() || was.Status != r.Status || was.CohortMissed != nil && *was.CohortMissed != terms.Missed
	c.moves = moved || c.respecified && !sameLimit(ticksOf(d.spec), was.Spec)
	return c, nil
}

// rearm has a schedule that left its cohort fire again: from now on, or from where its pause ends, or not while it is
// paused for good.
func (s *Schedules) rearm(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r *row, t *calendar.Timing, now time.Time) error {
	if r.Status == Active {
		return s.rejoin(ctx, tx, tenant, r, t, now, now)
	}
	if r.PausedUntil == nil {
		return nil
	}
	_, err := s.rejoined(ctx, tx, tenant, r, t, r.PausedUntil.Add(-time.Second), now)
	return err
}

// arm joins the cohort of its timing from after a moment on; it reports false where no nominal time is left.
func (s *Schedules) arm(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r *row, t *calendar.Timing, after, now time.Time) (bool, error) {
	terms, err := policy.Resolve(r.Stored, r.Defaults)
	if err != nil {
		return false, err
	}
	joined, err := r.join(ctx, tx, s, tenant, t, terms.Missed, after, now)
	if err != nil {
		return false, fmt.Errorf("join cohort: %w", err)
	}
	return joined, nil
}

func neverFires() error {
	return fault.Fields(fault.Field{Pointer: "/spec", Code: "never_fires", Detail: "the spec has no coming tick"})
}

// timed compiles the spec of a row and holds it to the tenant's quotas.
func (s *Schedules) timed(tenant tenants.ID, r *row, d definition, q tenants.Quotas, now time.Time, m *memo) (*calendar.Timing, error) {
	c, err := m.compile(d, r.AnchorAt, r.stored(tenant).Identity(), func(t *calendar.Timing) error { return fits(t, q, now) })
	if err != nil {
		return nil, err
	}
	r.first = c.FirstAt(r.CreatedAt) // told by the spec, and so not by a timing that is shared
	return s.Timings.Keep(tenant, c, d.almanac), nil
}

// fits holds a timing to what it must do: fire again, and no more often than the quota allows.
func fits(t *calendar.Timing, q tenants.Quotas, now time.Time) error {
	_, ok := t.Next(now)
	if cohorts.Delays(t) {
		_, ok = t.First(now)
	}
	if !ok {
		return neverFires()
	}
	least := smallestInterval(q)
	if gap := t.MinGap(now); gap > 0 && gap < least { // 0: it fires once
		return fault.Fields(fault.Field{Pointer: "/spec", Code: "interval_too_small", Detail: tooSmall(gap, least)})
	}
	return nil
}

func smallestInterval(q tenants.Quotas) time.Duration {
	return time.Duration(q.SmallestIntervalSeconds) * time.Second
}

func tooSmall(gap, least time.Duration) string {
	return fmt.Sprintf("it fires %s apart, and smallest_interval_seconds allows no less than %s", policy.FormatDuration(gap), policy.FormatDuration(least))
}

// setStatus makes the row active or paused as of now.
func (r *row) setStatus(status string, now time.Time) {
	r.Status, r.StatusNote, r.PausedAt, r.PausedUntil = status, nil, nil, nil
	if status == Paused {
		r.PausedAt = &now
	}
}

// define puts a definition into the row; status and note stay where the definition leaves them out.
func (r *row) define(d definition) {
	r.Spec, r.Stored, r.Payload, r.Labels, r.StoredProfile = d.specText, d.terms, d.payload, d.labels, d.profile.Stored()
	if d.note != nil || d.noteless {
		r.Note = d.note
	}
}

func (r *row) sameDefinition(o *row) bool {
	return r.Spec == o.Spec && r.Stored.Equal(o.Stored) && policy.Same(r.Payload, o.Payload) && maps.Equal(r.Labels, o.Labels) &&
		policy.Same(r.Note, o.Note) && policy.Same(r.StatusNote, o.StatusNote) && r.Status == o.Status
}

func ticksOf(spec calendar.Spec) *int32 {
	if spec.MaxTicks == nil {
		return nil
	}
	return new(int32(*spec.MaxTicks))
}

func sameLimit(limit *int32, storedSpec string) bool {
	var was calendar.Spec
	return json.Unmarshal([]byte(storedSpec), &was) == nil && policy.Same(limit, ticksOf(was))
}
