package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// batch changes schedules of one tenant in one transaction. It locks and reads rows, then it decides what becomes of each, then it writes
// all of them at once. Every change of a schedule is written by a batch; a change of one schedule is a batch of one.
type batch struct {
	schedules *Schedules
	change
	tx  pgx.Tx
	dry bool // nothing is written

	timings batchTimings
	space   space
	writes  writes
}

// batchTimings are the specs that the batch has compiled, and the timings that it has renewed.
type batchTimings struct {
	memo    *memo
	renewed map[*calendar.Timing]renewal
}

// space is how many bytes the tenant's quota has room for.
type space struct {
	left  *forecast.Space // nil until it is read
	bytes int             // the most that the rows of the batch need
}

// writes is what a batch writes when it has decided about all rows.
type writes struct {
	rows    []*rewrite
	ids     []int64 // for new rows
	gone    []*row  // to be deleted
	byHand  []int64 // schedules that a single request pauses
	left    []membership
	due     []cohorts.Due
	audits  []tenants.Change
	refresh map[cohortKey]time.Time // the next times of cohorts that stay as they are; zero: nothing is left
	rezoned []int64                 // schedules that fire once a day, and have another zone
}

// rewrite is a row that is to be written.
type rewrite struct {
	*row
	newborn   bool
	redefined bool // its definition is another
	quiet     bool // the change makes no version
	joins     bool // it is a member from now on, of the cohort that is found for it
	timing    *cohortNeed
	next      time.Time
	before    *time.Time // its next tick before this version, and by it
	after     *time.Time
	fire      *cohorts.Due // is handed out once its cohort is known

	action string // what the audit calls the change; empty: the change has no audit of its own
	was    *audited
	origin *tenants.Origin
}

// membership is one that ends.
type membership struct {
	cohort, phase, schedule int64
	alone                   *row // with fixed_delay: the row that has left
}

// renewal is a timing by the present calendars and the tz database in force.
type renewal struct {
	timing   *calendar.Timing
	revision int64
}

func (s *Schedules) newBatch(tx pgx.Tx, c change) *batch {
	return &batch{
		schedules: s, change: c, tx: tx,
		timings: batchTimings{newMemo(), map[*calendar.Timing]renewal{}}, writes: writes{refresh: map[cohortKey]time.Time{}},
	}
}

// rewrite returns a stored row that is about to change, and what the audit tells of it before. The caller decides whether it is written.
func (b *batch) rewrite(r *row, t *calendar.Timing, action string) *rewrite {
	w := &rewrite{row: r, before: r.coming(t, b.now), action: action}
	if action != "" {
		w.was = r.audited()
	}
	return w
}

// add adds a row that is to be written. t is its timing from now on.
func (b *batch) add(w *rewrite, t *calendar.Timing) {
	w.after = w.coming(t, b.now)
	b.writes.rows = append(b.writes.rows, w)
}

// redefine puts a definition into a stored row, and adds the row to the batch if that changes it.
func (b *batch) redefine(ctx context.Context, r *row, d definition, action string) (*rewrite, error) {
	before, err := r.timing(ctx, b.tx, b.schedules.Timings, b.tenant)
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
		return nil, err
	}
	w := b.rewrite(r, before, action)
	w.redefined = true
	c, err := b.schedules.apply(r, d, before, b.change, b.timings.memo)
	if err != nil || !c.differs {
		return nil, err
	}
	if err := b.takeSpace(ctx, r.held()); err != nil {
		return nil, err
	}
	if (c.respecified || before == nil) && r.MovedUntil == nil {
		b.hold(c.timing, d.almanac)
	}
	if c.moves {
		if err := b.schedules.afford(b.tenant, r, c, before, b.quotas, b.now); err != nil {
			return nil, err
		}
		left, due := len(b.writes.left), len(b.writes.due)
		b.leave(r, before)
		c.recount(r, d)
		if err := b.rearm(ctx, w, c.timing); err != nil {
			b.writes.left, b.writes.due = b.writes.left[:left], b.writes.due[:due]
			return nil, err
		}
	}
	b.add(w, c.timing)
	return w, nil
}

// leave ends the row's membership of its cohort. Ticks that were due and not yet swept are handed out first. t is nil if the timing
// cannot be computed; then nothing is due.
func (b *batch) leave(r *row, t *calendar.Timing) {
	if r.CohortID == nil {
		return
	}
	left := membership{cohort: *r.CohortID, phase: r.Phase, schedule: r.ID}
	if r.delayed() {
		left.alone = r
	}
	b.writes.left = append(b.writes.left, left)
	b.writes.due = append(b.writes.due, r.withdraw(b.tenant, t, b.now)...)
}

// rearm makes a row that left its cohort fire again: from now on, or from the end of its pause. A schedule that is paused for good stays
// out. It returns a fault if the schedule would never fire.
func (b *batch) rearm(ctx context.Context, w *rewrite, t *calendar.Timing) error {
	after := b.now
	if w.Status != policy.Active {
		if w.PausedUntil == nil {
			return nil
		}
		after = w.PausedUntil.Add(-time.Second)
	}
	if err := b.enter(ctx, w, t, after); err != nil {
		return err
	}
	if !w.joins && w.Status == policy.Active {
		return neverFires()
	}
	return nil
}

// rejoin places a row that left its cohort in the one of its timing. An active row for which no nominal time is left is completed.
func (b *batch) rejoin(ctx context.Context, w *rewrite, t *calendar.Timing, after time.Time) error {
	if err := b.enter(ctx, w, t, after); err != nil {
		return err
	}
	if !w.joins && w.Status == policy.Active {
		w.Status = policy.Completed
	}
	return nil
}

// enter places a row in the cohort of its timing, from after a moment on, unless no nominal time is left. The number of the cohort is
// found later, for all rows at once.
func (b *batch) enter(ctx context.Context, w *rewrite, t *calendar.Timing, after time.Time) error {
	terms, err := policy.Resolve(w.Stored, w.Defaults)
	if err != nil {
		return err
	}
	fresh, ok := b.timings.renewed[t]
	if !ok {
		if fresh.timing, fresh.revision, err = b.schedules.Timings.Renew(ctx, b.tx, b.tenant, t); err != nil {
			return fmt.Errorf("join cohort: %w", err)
		}
		b.timings.renewed[t] = fresh
	}
	t = fresh.timing
	if w.next, w.joins = w.row.enter(b.tenant, t, terms.Missed, after); w.joins {
		w.timing = &cohortNeed{
			cohortName: cohortName{w.Workflow, w.Shard, string(w.Hash), terms.Missed},
			timing:     t, stamp: cohorts.Stamp{Revision: fresh.revision, TZData: t.Zones().Version()},
		}
		if runs.Delays(t) {
			w.timing.alone = w.row
		}
	}
	return nil
}

// hold notes that a timing was just compiled by the present calendars. These stand until the transaction ends, so that the timing need not
// be renewed.
func (b *batch) hold(t *calendar.Timing, a *cohorts.CalendarSet) {
	if a != nil && t.Zones() == calendar.InForce() {
		b.timings.renewed[t] = renewal{t, a.At()}
	}
}

// takeSpace refuses a row that stores more bytes than the tenant's quota has room for.
func (b *batch) takeSpace(ctx context.Context, bytes int) error {
	if b.space.left == nil {
		has, err := b.schedules.Forecasts.SpaceFor(ctx, b.tx, b.tenant, max(b.space.bytes, bytes), b.quotas)
		if err != nil {
			return err
		}
		b.space.left = &has
	}
	if bytes > b.space.left.Left {
		return tenants.Exceeded("stored_bytes", b.quotas.StoredBytes, b.space.left.Used)
	}
	b.space.left.Left -= bytes
	b.space.left.Used += bytes
	return nil
}
