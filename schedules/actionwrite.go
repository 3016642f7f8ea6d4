package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
)

// acting is one batch of stored schedules that an action is done to: each is decided by the rules of a single Pause,
// Resume or Delete, then all are written at once.
type acting struct {
	load
	action  string
	counts  map[string]int64
	gone    []int64
	refresh map[cohortKey]time.Time // the next time of cohorts that stay as they are
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

var acted = map[string]string{actPause: "paused", actResume: "resumed", actDelete: "deleted", actRetime: "retimed"}

// run locks the candidates, in the order of shards, and acts on those that are picked; next is when a row fires next.
func (a *acting) run(ctx context.Context, found []candidate, picked func(r *row, next *time.Time) bool) error {
	a.counts, a.refresh = map[string]int64{}, map[cohortKey]time.Time{}
	shards, ids := make([]int16, len(found)), make([]int64, len(found))
	for i, c := range found {
		shards[i], ids[i] = c.Shard, c.ID
	}
	_, err := a.tx.Exec(ctx, `
		SELECT pg_advisory_xact_lock_shared($1, shard)
		FROM (SELECT DISTINCT n AS shard FROM unnest($2::smallint[]) n ORDER BY 1) s`, cohorts.ShardLocks, shards)
	if err != nil {
		return fmt.Errorf("lock shards: %w", err)
	}
	rows, err := a.lockRows(ctx, ids)
	if err != nil {
		return err
	}
	for _, r := range rows {
		r.wake(a.now)
		t, err := r.timing(ctx, a.tx, a.Timings, a.tenant)
		if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
			return err
		}
		if !picked(r, r.firesNext(t, a.now)) {
			continue
		}
		what, err := a.one(ctx, r, t)
		if err != nil {
			return err
		}
		a.counts[what]++
	}
	if a.dry {
		return nil
	}
	return a.write(ctx)
}

// firesNext is the row's next tick, or one that is due and not yet swept.
func (r *row) firesNext(t *calendar.Timing, now time.Time) *time.Time {
	if t == nil {
		return nil
	}
	for due := range r.unserved(t, now) {
		return &due.At
	}
	return r.coming(t, now)
}

// one decides what becomes of a row; its timing is nil where it cannot be computed.
func (a *acting) one(ctx context.Context, r *row, t *calendar.Timing) (what string, err error) {
	w := &rewrite{row: r, before: r.coming(t, a.now)}
	switch {
	case a.action == actDelete:
		a.leaveLater(r, t)
		a.gone = append(a.gone, r.ID)
		return acted[a.action], nil
	case a.action == actRetime:
		return a.retime(ctx, w, t)
	case t == nil || r.Status == Completed || r.Status == Quarantined:
		return countNotPossible, nil
	case a.action == actResume && r.Status == Active, a.action == actPause && r.Status == Paused && r.PausedUntil == nil && r.StatusNote == nil:
		return countUnchanged, nil
	}
	a.leaveLater(r, t)
	if a.action == actPause {
		since := r.PausedAt
		r.setStatus(Paused, a.now)
		if since != nil {
			r.PausedAt = since
		}
	} else {
		r.setStatus(Active, a.now)
		if err := a.rejoinLater(ctx, w, t, a.now); err != nil {
			return "", err
		}
	}
	w.after = r.coming(t, a.now)
	a.rows = append(a.rows, w)
	return acted[a.action], nil
}

// rejoinLater has a row that has left its cohort enter the one of its timing; an active one for which nothing is left is
// completed.
func (a *acting) rejoinLater(ctx context.Context, w *rewrite, t *calendar.Timing, after time.Time) error {
	if err := a.enterLater(ctx, w, t, after); err != nil {
		return err
	}
	if !w.joins && w.Status == Active {
		w.Status = Completed
	}
	return nil
}

// retime compiles a row's spec anew, as of now. What it says is no other definition, so no version is made, but where a
// quarantined one can be computed again.
func (a *acting) retime(ctx context.Context, w *rewrite, before *calendar.Timing) (what string, err error) {
	r := w.row
	if r.Status == Completed || r.Status == Paused && r.CohortID == nil {
		return countUnchanged, nil
	}
	t, err := a.Timings.CompileStored(ctx, a.tx, r.stored(a.tenant))
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
	after := a.now
	w.quiet = r.Status != Quarantined
	switch {
	case !w.quiet:
		r.setStatus(Active, a.now)
	case r.PausedUntil != nil:
		after = r.PausedUntil.Add(-time.Second)
	}
	a.leaveLater(r, before)
	if err := a.rejoinLater(ctx, w, t, after); err != nil {
		return "", err
	}
	r.TZData = calendar.InForce().Version()
	w.after = r.coming(t, a.now)
	a.rows = append(a.rows, w)
	return acted[actRetime], nil
}

// stay leaves a row in its cohort, whose next time is set anew where the zone's rules have moved it.
func (a *acting) stay(r *row, t *calendar.Timing) (what string) {
	next, ok := t.Next(a.now)
	if r.RetimeAt != nil || r.RunAt != nil || r.NextAt == nil || !r.NextAt.After(a.now) || ok && next.At.Equal(*r.NextAt) {
		return countUnchanged
	}
	a.refresh[cohortKey{r.Shard, *r.CohortID}] = next.At // zero: nothing is left
	return acted[actRetime]
}

// write hands out what is due, then writes all that was decided.
func (a *acting) write(ctx context.Context) error {
	var ended []int64
	bytes := 0
	for _, w := range a.rows {
		if !w.quiet {
			ended, bytes = append(ended, w.ID), bytes+w.held()
		}
	}
	if a.action == actResume {
		if err := a.Forecasts.MayStore(ctx, a.tx, a.tenant, bytes); err != nil {
			return err
		}
	}
	if err := a.findCohorts(ctx); err != nil {
		return err
	}
	if err := a.handOut(ctx); err != nil {
		return err
	}
	var b pgx.Batch
	var c columns
	for _, w := range a.rows {
		c.add(w)
	}
	if len(ended) > 0 {
		b.Queue(endVersions, a.tenant, ended, false, a.now, a.by)
		forecast.AddBytes(&b, a.tenant, bytes)
	}
	if len(a.gone) > 0 {
		b.Queue(endVersions, a.tenant, a.gone, true, a.now, a.by)
		b.Queue(`DELETE FROM schedule_state WHERE tenant_id = $1 AND schedule_id = ANY($2)`, a.tenant, a.gone)
		b.Queue(`DELETE FROM schedule WHERE tenant_id = $1 AND id = ANY($2)`, a.tenant, a.gone)
	}
	a.expel(&b)
	if len(a.rows) > 0 {
		c.enroll(&b, &a.load)
		c.restate(&b, &a.load)
	}
	if len(a.refresh) > 0 {
		a.reset(&b)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := a.tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("act on schedules: %w", err)
	}
	return a.writeDelays(ctx)
}

// restate writes the state and the place of rows whose definition stays; a quiet one keeps its version.
func (c *columns) restate(b *pgx.Batch, l *load) {
	b.Queue(`
		UPDATE schedule s
		SET version = n.version, status = n.status, status_note = n.status_note, ticks_left = n.ticks_left,
			paused_at = n.paused_at, paused_until = n.paused_until, cohort_id = n.cohort_id, spread = n.spread, tzdata = n.tzdata,
			updated_at = CASE WHEN n.version > s.version THEN $2 ELSE s.updated_at END,
			updated_by = CASE WHEN n.version > s.version THEN $3 ELSE s.updated_by END,
			next_before = CASE WHEN n.version > s.version THEN n.next_before ELSE s.next_before END,
			next_after = CASE WHEN n.version > s.version THEN n.next_after ELSE s.next_after END
		FROM unnest($4::bigint[], $5::int[], $6::text[], $7::text[], $8::int[], $9::timestamptz[], $10::timestamptz[],
			$11::bigint[], $12::bigint[], $13::text[], $14::timestamptz[], $15::timestamptz[])
			AS n (id, version, status, status_note, ticks_left, paused_at, paused_until, cohort_id, spread, tzdata, next_before, next_after)
		WHERE s.tenant_id = $1 AND s.id = n.id`,
		l.tenant, l.now, l.by, c.ids, c.versions, c.statuses, c.statusNotes, c.ticksLeft, c.pausedAt, c.pausedUntil,
		c.cohorts, c.spreads, c.tzdata, c.before, c.after)
}

// reset has cohorts fire next when their timings say so by now. The sweep is away, as the shards are locked.
func (a *acting) reset(b *pgx.Batch) {
	var shards []int16
	var ids []int64
	var next []*time.Time
	for key, at := range a.refresh {
		shards, ids = append(shards, key.shard), append(ids, key.id)
		if next = append(next, nil); !at.IsZero() {
			next[len(next)-1] = &at
		}
	}
	b.Queue(`
		UPDATE cohort c
		SET next_at = n.next_at, due_at = `+cohorts.NotPast("n.next_at")+`
		FROM unnest($2::smallint[], $3::bigint[], $4::timestamptz[]) AS n (shard, id, next_at)
		WHERE c.tenant_id = $1 AND c.shard = n.shard AND c.id = n.id AND c.run_at IS NULL AND c.retime_at IS NULL`, a.tenant, shards, ids, next)
}
