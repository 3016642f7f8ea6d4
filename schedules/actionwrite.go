package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// acting does an action to a batch of stored schedules, by the rules of a single Pause, Resume or Delete.
type acting struct {
	batch  *batch
	action string
	sync   bool // a sync does it
	counts map[string]int64
}

type cohortKey struct {
	shard int16
	id    int64
}

// What an action comes to, in an operation's counts, beside what is named after the action.
const (
	countUnchanged   = "unchanged"
	countNotPossible = "not_possible"
)

// pausedBySync marks a schedule that a sync paused, because it was not listed.
const pausedBySync = "sync"

var acted = map[string]string{actPause: "paused", actResume: "resumed", actDelete: "deleted", actRetime: "retimed"}

// run locks the candidates, in the order of their shards, and acts on those that are picked. next is when a row fires next.
func (a *acting) run(ctx context.Context, found []candidate, picked func(r *row, next *time.Time) bool) error {
	a.counts = map[string]int64{}
	shards, ids := make([]int16, len(found)), make([]int64, len(found))
	for i, c := range found {
		shards[i], ids[i] = c.Shard, c.ID
	}
	_, err := a.batch.tx.Exec(ctx, `
		SELECT pg_advisory_xact_lock_shared($1, shard)
		FROM (SELECT DISTINCT n AS shard FROM unnest($2::smallint[]) n ORDER BY 1) s`, cohorts.ShardLocks, shards)
	if err != nil {
		return fmt.Errorf("lock shards: %w", err)
	}
	rows, err := a.batch.lockRows(ctx, ids)
	if err != nil {
		return err
	}
	if err := a.batch.prepare(ctx, rows, nil); err != nil {
		return err
	}
	for _, r := range rows {
		t, err := r.timing(ctx, a.batch.tx, a.batch.schedules.Timings, a.batch.tenant)
		if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
			return err
		}
		if !picked(r, r.firesNext(t, a.batch.now)) {
			continue
		}
		what, err := a.one(ctx, r, t)
		if err != nil {
			return err
		}
		a.counts[what]++
	}
	if a.action == actResume {
		bytes := 0
		for _, w := range a.batch.writes.rows {
			bytes += w.held()
		}
		if err := a.batch.schedules.Forecasts.MayStore(ctx, a.batch.tx, a.batch.tenant, bytes); err != nil {
			return err
		}
	}
	return a.batch.write(ctx)
}

// firesNext returns the row's next tick, or one that is due and not yet swept.
func (r *row) firesNext(t *calendar.Timing, now time.Time) *time.Time {
	if t == nil {
		return nil
	}
	for due := range r.unserved(t, now) {
		return &due.At
	}
	return r.coming(t, now)
}

// one does the action to a row. t is nil if the row's timing cannot be computed.
func (a *acting) one(ctx context.Context, r *row, t *calendar.Timing) (what string, err error) {
	w := a.batch.rewrite(r, t, "")
	switch {
	case a.action == actDelete:
		a.batch.leave(r, t)
		a.batch.writes.gone = append(a.batch.writes.gone, r)
		return acted[a.action], nil
	case a.action == actRetime:
		return a.retime(ctx, w, t)
	case t == nil || r.Status == policy.Completed || r.Status == policy.Quarantined:
		return countNotPossible, nil
	case a.action == actResume && r.Status == policy.Active, a.action == actPause && r.Status == policy.Paused && r.PausedUntil == nil && r.StatusNote == nil && (r.PausedBy == nil || a.sync):
		return countUnchanged, nil
	}
	a.batch.leave(r, t)
	if a.action == actPause {
		since := r.PausedAt
		r.setStatus(policy.Paused, a.batch.now)
		if since != nil { // by hand, until a moment
			r.PausedAt = since
		} else if a.sync {
			r.PausedBy = new(pausedBySync)
		}
	} else {
		r.setStatus(policy.Active, a.batch.now)
		if err := a.batch.rejoin(ctx, w, t, a.batch.now); err != nil {
			return "", err
		}
	}
	a.batch.add(w, t)
	return acted[a.action], nil
}

// retime compiles a row's spec again, as of now. The definition stays, so it makes no version, except for a quarantined row that can be
// computed again.
func (a *acting) retime(ctx context.Context, w *rewrite, before *calendar.Timing) (what string, err error) {
	r := w.row
	if r.Status == policy.Completed || r.Status == policy.Paused && r.CohortID == nil {
		return countUnchanged, nil
	}
	t, err := a.batch.schedules.Timings.CompileStored(ctx, a.batch.tx, r.stored(a.batch.tenant))
	if errors.Is(err, cohorts.ErrUncomputable) {
		return countNotPossible, nil
	}
	if err != nil {
		return "", err
	}
	terms, err := policy.Resolve(r.Stored, r.Defaults)
	if err != nil {
		return "", err
	}
	hash := t.Hash()
	if r.CohortID != nil && string(hash[:]) == string(r.Hash[:timingHash]) && *r.CohortMissed == terms.Missed {
		if r.delayed() { // its next time is counted from an end, and stays
			return countUnchanged, nil
		}
		return a.stay(r, t), nil
	}
	after := a.batch.now
	w.quiet = r.Status != policy.Quarantined
	switch {
	case !w.quiet:
		r.setStatus(policy.Active, a.batch.now)
	case r.PausedUntil != nil:
		after = r.PausedUntil.Add(-time.Second)
	}
	a.batch.leave(r, before)
	if err := a.batch.rejoin(ctx, w, t, after); err != nil {
		return "", err
	}
	r.TZData = calendar.InForce().Version()
	a.batch.add(w, t)
	return acted[actRetime], nil
}

// stay leaves a row in its cohort, and sets the cohort's next time if the zone's rules have moved it.
func (a *acting) stay(r *row, t *calendar.Timing) (what string) {
	next, ok := t.Next(a.batch.now)
	if r.RetimeAt != nil || r.RunAt != nil || r.NextAt == nil || !r.NextAt.After(a.batch.now) || ok && next.At.Equal(*r.NextAt) {
		return countUnchanged
	}
	a.batch.writes.refresh[cohortKey{r.Shard, *r.CohortID}] = next.At // zero: nothing is left
	return acted[actRetime]
}
