package schedules

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// acting does an action to a batch of stored schedules, by the rules of the single change of the same name.
type acting struct {
	batch  *batch
	action string
	sync   bool // a sync does it
	counts map[string]int64

	asked    asked
	pauses   []recordedPause
	refusals map[string]int64        // by the code of the fault
	recorded map[int64]recordedPause // what the operation to be undone paused
}

// asked is the request of a client that an operation does; empty if no client asked for the action.
type asked struct {
	work      *actionWork
	operation *operations.Operation
	undoes    int64 // the number of the operation whose pause is undone; 0: none
	trigger   func(ctx context.Context, tx pgx.Tx, of policy.Name) error
}

type cohortKey struct {
	shard int16
	id    int64
}

// The counts of an operation, beside the count that is named after its action.
const (
	countUnchanged   = "unchanged"
	countNotPossible = "not_possible"
	countRefused     = "refused"
	countRestored    = "restored"
)

// pausedBySync marks a schedule that a sync paused, because it was not listed.
const pausedBySync = "sync"

var acted = map[string]string{
	actPause: "paused", actResume: "resumed", actDelete: "deleted", actRetime: "retimed", actSkip: "skipped", actPatch: "patched", actTrigger: "triggered",
}

// run locks the candidates, in the order of their shards, and acts on those that are picked. next is when a row fires next.
func (a *acting) run(ctx context.Context, found []candidate, picked func(r *row, next *time.Time) bool) error {
	a.counts, a.refusals = map[string]int64{}, map[string]int64{}
	if a.action == actPatch {
		return a.patch(ctx, found, picked)
	}
	if err := lockShards(ctx, a.batch.tx, found); err != nil {
		return err
	}
	rows, err := a.batch.lockRows(ctx, numbers(found))
	if err != nil {
		return err
	}
	if rows, err = a.stillPaused(ctx, rows); err != nil {
		return err
	}
	if err := a.batch.prepare(ctx, rows, nil); err != nil {
		return err
	}
	for _, r := range rows {
		t, err := a.timingOf(ctx, r)
		if err != nil {
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
	if err := a.recordPauses(ctx); err != nil {
		return err
	}
	return a.batch.write(ctx)
}

func numbers(found []candidate) []int64 {
	ids := make([]int64, len(found))
	for i, c := range found {
		ids[i] = c.ID
	}
	return ids
}

// timingOf returns the timing of a row, or nil if it cannot be computed.
func (a *acting) timingOf(ctx context.Context, r *row) (*calendar.Timing, error) {
	t, err := r.timing(ctx, a.batch.tx, a.batch.schedules.Timings, a.batch.tenant)
	if errors.Is(err, cohorts.ErrUncomputable) {
		return nil, nil
	}
	return t, err
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
	case a.action == actTrigger:
		return a.triggerOne(ctx, r)
	case a.action == actSkip:
		return a.skip(ctx, r, t)
	case t == nil || r.Status == policy.Completed || r.Status == policy.Quarantined:
		return countNotPossible, nil
	case a.action == actPause:
		return a.pause(ctx, w, t)
	case r.Status == policy.Active:
		return countUnchanged, nil
	}
	what = acted[actResume]
	a.batch.leave(r, t)
	if was, found := a.recorded[r.ID]; found && was.holds(a.batch.now) {
		was.restore(r)
		what = countRestored
		err = a.batch.rearm(ctx, w, t)
	} else {
		r.setStatus(policy.Active, a.batch.now)
		err = a.batch.rejoin(ctx, w, t, a.batch.now)
	}
	if err != nil {
		return "", err
	}
	a.batch.add(w, t)
	return what, nil
}

// triggerOne makes a manual tick of the row's schedule.
func (a *acting) triggerOne(ctx context.Context, r *row) (what string, err error) {
	err = a.asked.trigger(ctx, a.batch.tx, policy.Name{Tenant: a.batch.tenant, Workflow: r.Workflow, Key: r.Key})
	if _, refused := errors.AsType[*fault.Error](err); refused {
		return countNotPossible, nil
	}
	return acted[actTrigger], err
}

// skip leaves out the next ticks of a row that are not left out yet.
func (a *acting) skip(ctx context.Context, r *row, t *calendar.Timing) (what string, err error) {
	if t == nil || r.CohortID == nil {
		return countNotPossible, nil
	}
	err = a.batch.skip(ctx, r, SkipParams{Count: &a.asked.work.Count}, t)
	if _, refused := errors.AsType[*fault.Error](err); refused {
		return countNotPossible, nil
	}
	return acted[actSkip], err
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
