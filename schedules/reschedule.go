package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// RescheduleParams move the coming tick whose nominal time is At to the nominal time To.
type RescheduleParams struct {
	At time.Time `json:"at" validate:"required"`
	To time.Time `json:"to" validate:"required"`
}

const (
	mostMoves = 100 // of coming ticks of one schedule at a time
	keptMoves = 200 // with those that have passed
)

// Reschedule moves one coming tick of a schedule to another time, which becomes its nominal time. There is no tick at the time that the
// spec names. The tick stays between the ticks before and after it, so that the order of the sequence and max_ticks stay. So does
// the version.
func (s *Schedules) Reschedule(ctx context.Context, tenant tenants.ID, workflow, key string, p RescheduleParams, by Changer) (out Schedule, replayed bool, err error) {
	at, to := p.At.UTC(), p.To.UTC()
	return s.restatus(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, "reschedule", by, func(ctx context.Context, b *batch, w *rewrite, t *calendar.Timing) (bool, error) {
		r, now := w.row, b.now
		if r.CohortID == nil {
			return false, fault.Conflict("not_active", "the schedule is %s", r.Status)
		}
		if err := r.movable(t, at, now); err != nil {
			return false, err
		}
		if err := r.fitsBetween(t, at, to, now); err != nil || at.Equal(to) {
			return false, err
		}
		moves, err := r.move(cohorts.Moved{At: at, To: to, MovedAt: now, By: by.By}, now)
		if err != nil {
			return false, err
		}
		if tick, ok := t.Moved(cohorts.Shifts(moves)).Next(to.Add(-time.Second)); !ok || !tick.At.Equal(to) {
			return false, badTo("out_of_order", "the spec's start_at or end_at does not allow it")
		}
		return true, b.retimeMoved(ctx, w, t, moves)
	})
}

// movable returns a fault unless at is the time of a tick that is still to come.
func (r *row) movable(t *calendar.Timing, at, now time.Time) error {
	if _, delayed := t.FixedDelay(); delayed {
		return fault.Fields(fault.Field{Pointer: "/at", Code: "not_coming", Detail: "a tick of a fixed_delay schedule has no time until the previous tick has ended"})
	}
	next, ok := r.nextAfter(t, at.Add(-time.Nanosecond))
	if ok && next.Equal(at) && at.After(now) {
		return nil
	}
	detail := fmt.Sprintf("%s is not the time of a coming tick", at.Format(time.RFC3339Nano))
	var near []string
	if before, ok := r.comingBefore(t, at, now); ok {
		near = append(near, before.Format(time.RFC3339))
	}
	if after, ok := r.nextAfter(t, later(at, now)); ok {
		near = append(near, after.Format(time.RFC3339))
	}
	switch len(near) {
	case 1:
		detail += "; the nearest is at " + near[0]
	case 2:
		detail += "; the nearest are at " + near[0] + " and " + near[1]
	}
	return fault.Fields(fault.Field{Pointer: "/at", Code: "not_coming", Detail: detail})
}

// comingBefore returns the last time before a moment at which a tick of the member is still to come.
func (r *row) comingBefore(t *calendar.Timing, before, now time.Time) (time.Time, bool) {
	if r.UntilAt != nil && before.After(*r.UntilAt) {
		before = r.UntilAt.Add(time.Second)
	}
	tick, ok := t.Prev(before)
	for ok && r.skipped(tick.At) {
		tick, ok = t.Prev(tick.At)
	}
	return tick.At, ok && tick.At.After(now) && !tick.At.Before(*r.FromAt)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func badTo(code, format string, args ...any) error {
	return fault.Fields(fault.Field{Pointer: "/to", Code: code, Detail: fmt.Sprintf(format, args...)})
}

// fitsBetween returns a fault unless to is in the future, and between the ticks before and after the tick at at.
func (r *row) fitsBetween(t *calendar.Timing, at, to, now time.Time) error {
	switch {
	case to.Nanosecond() != 0:
		return fault.Invalid("/to", "%s is not a whole second", to.Format(time.RFC3339Nano))
	case !to.After(now):
		return badTo("has_passed", "%s has passed", to.Format(time.RFC3339))
	case to.Before(*r.FromAt):
		return badTo("out_of_order", "the schedule has no ticks before %s", r.FromAt.UTC().Format(time.RFC3339))
	}
	if before, ok := t.Prev(at); ok && !to.After(before.At) {
		return badTo("out_of_order", "it must come after the tick at %s that it follows", before.At.Format(time.RFC3339))
	}
	if after, ok := t.Next(at); ok && !to.Before(after.At) {
		return badTo("out_of_order", "it must come before the next tick, at %s", after.At.Format(time.RFC3339))
	}
	return nil
}

// move returns the row's moves with one more, which may move a tick that was moved before.
func (r *row) move(m cohorts.Moved, now time.Time) ([]cohorts.Moved, error) {
	moves := slices.Clone(r.Moves)
	if i := slices.IndexFunc(moves, func(was cohorts.Moved) bool { return was.To.Equal(m.At) }); i >= 0 {
		m.At = moves[i].At
		moves = slices.Delete(moves, i, i+1)
	}
	if !m.At.Equal(m.To) {
		moves = append(moves, m)
	}
	coming := 0
	for _, one := range moves {
		if one.Ahead(now) {
			coming++
		}
	}
	if coming > mostMoves {
		return nil, fault.Fields(fault.Field{Pointer: "", Code: "too_many_moves", Detail: fmt.Sprintf("%d coming ticks are moved already, which is the maximum", mostMoves)})
	}
	for i := 0; i < len(moves) && len(moves) > keptMoves; {
		if moves[i].Ahead(now) {
			i++
			continue
		}
		moves = slices.Delete(moves, i, i+1)
	}
	return moves, nil
}

// shifts returns the row's moves as its timing takes them. There are none once all have passed and the row is timed without them.
func (r *row) shifts() []calendar.Move {
	if r.MovedUntil == nil {
		return nil
	}
	return cohorts.Shifts(r.Moves)
}

// setMoves gives the row these moves from now on.
func (r *row) setMoves(moves []cohorts.Moved, now time.Time) {
	r.Moves, r.MovedUntil = moves, nil
	for _, m := range moves {
		if last := later(m.At, m.To); m.Ahead(now) && (r.MovedUntil == nil || last.After(*r.MovedUntil)) {
			r.MovedUntil = &last
		}
	}
}

// unmove undoes the moves of coming ticks, as the spec is another from now on. Those that have passed are history.
func (r *row) unmove(now time.Time) {
	r.setMoves(slices.DeleteFunc(slices.Clone(r.Moves), func(m cohorts.Moved) bool { return m.Ahead(now) }), now)
}

// movesText returns the row's moves as they are stored.
func (r *row) movesText() (*string, error) {
	if len(r.Moves) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(r.Moves)
	if err != nil {
		return nil, fmt.Errorf("write moves: %w", err)
	}
	return new(string(b)), nil
}

// retimeMoved moves the row to the cohort of its timing with other moves. Its definition and version stay, and so do the bounds of its
// membership.
func (b *batch) retimeMoved(ctx context.Context, w *rewrite, t *calendar.Timing, moves []cohorts.Moved) error {
	after := b.now
	if w.FromAt != nil {
		after = later(b.now, w.FromAt.Add(-time.Second))
	}
	member := w.CohortID != nil
	w.quiet = true
	b.leave(w.row, t)
	w.setMoves(moves, b.now)
	if !member {
		return nil
	}
	if err := b.enter(ctx, w, b.schedules.Timings.Keep(b.tenant, t.Moved(w.shifts()), nil), after); err != nil {
		return err
	}
	if !w.joins {
		w.setStatus(policy.Active, b.now)
		w.Status = policy.Completed
	}
	return nil
}

// Settle moves a schedule back to the timing that its spec shares with others, once all of its moved ticks have come. It does nothing if
// the schedule is gone, or if some moved ticks are still to come.
func (s *Schedules) Settle(ctx context.Context, tenant tenants.ID, workflow, key string) error {
	ctx = postgres.ForTenant(ctx, int32(tenant))
	of := policy.Name{Tenant: tenant, Workflow: workflow, Key: key}
	return s.changeOne(ctx, of, "", nil, func(ctx context.Context, b *batch, r *row) error {
		if r == nil || r.MovedUntil == nil || r.MovedUntil.After(b.now) {
			return nil
		}
		t, err := r.timing(ctx, b.tx, s.Timings, tenant)
		if errors.Is(err, cohorts.ErrUncomputable) {
			return nil
		}
		if err != nil {
			return err
		}
		w := b.rewrite(r, t, "")
		if err := b.retimeMoved(ctx, w, t, r.Moves); err != nil {
			return err
		}
		b.add(w, t)
		return b.write(ctx)
	})
}

// carry returns the timing of a spec that replaces another. If both specs mean the same, it has the moves of the row; else the row's moves
// are undone.
func (r *row) carry(was *row, t *calendar.Timing, tenant tenants.ID, now time.Time) *calendar.Timing {
	before, err := was.stored(tenant).Meaning()
	if err == nil && before.Moved(nil).Hash() == t.Hash() {
		return t.Moved(r.shifts())
	}
	r.unmove(now)
	return t
}
