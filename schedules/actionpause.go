package schedules

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// recordedPause is what an operation needs to undo its pause of a schedule exactly.
type recordedPause struct {
	ScheduleID  int64
	PausedAt    time.Time // of the schedule after the action
	WasPaused   bool
	UntilBefore *time.Time
	NoteBefore  *string
	SyncBefore  bool
}

// holds reports whether the schedule was paused before the action, by a pause that has not ended.
func (p recordedPause) holds(now time.Time) bool {
	return p.WasPaused && (p.UntilBefore == nil || p.UntilBefore.After(now))
}

// restore puts the pause before the action into a row.
func (p recordedPause) restore(r *row) {
	r.StatusNote, r.PausedUntil, r.PausedBy = p.NoteBefore, p.UntilBefore, nil
	if p.SyncBefore {
		r.PausedBy = new(pausedBySync)
	}
}

// forgetPauses deletes what operations remember of schedules that they paused.
const forgetPauses = `DELETE FROM operation_pause WHERE tenant_id = $1 AND schedule_id = ANY($2)`

// pause pauses a row that is neither completed nor quarantined, as a single Pause does.
func (a *acting) pause(ctx context.Context, w *rewrite, t *calendar.Timing) (what string, err error) {
	r := w.row
	var note *string
	var until *time.Time
	if a.asked.work != nil {
		note = a.asked.work.Note
		if a.asked.work.Until != nil {
			until = new(wholeSecond(*a.asked.work.Until))
		}
	}
	if r.Status == policy.Paused && policy.Same(unix(r.PausedUntil), unix(until)) && policy.Same(r.StatusNote, note) && (r.PausedBy == nil || a.sync) {
		return countUnchanged, nil
	}
	if until != nil && !until.After(a.batch.now) { // the moment has passed while the operation ran
		return countNotPossible, nil
	}
	was := recordedPause{
		ScheduleID: r.ID, WasPaused: r.Status == policy.Paused, UntilBefore: r.PausedUntil, NoteBefore: r.StatusNote, SyncBefore: r.PausedBy != nil,
	}
	since := r.PausedAt
	a.batch.leave(r, t)
	r.setStatus(policy.Paused, a.batch.now)
	if since != nil { // by hand, until a moment
		r.PausedAt = since
	} else if a.sync {
		r.PausedBy = new(pausedBySync)
	}
	r.StatusNote, r.PausedUntil = note, until
	if until != nil {
		if err := a.batch.rearm(ctx, w, t); err != nil {
			return "", err
		}
	}
	was.PausedAt = *r.PausedAt
	a.pauses = append(a.pauses, was)
	a.batch.add(w, t)
	return acted[actPause], nil
}

// recordPauses stores what the operation has paused, so that it can be undone, or forgets what it has undone.
func (a *acting) recordPauses(ctx context.Context) error {
	if a.asked.operation == nil {
		return nil
	}
	if len(a.recorded) > 0 && a.action == actResume {
		ids := make([]int64, 0, len(a.recorded))
		for id := range a.recorded {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		if _, err := a.batch.tx.Exec(ctx, forgetPauses, a.batch.tenant, ids); err != nil {
			return fmt.Errorf("forget what an operation paused: %w", err)
		}
	}
	if len(a.pauses) == 0 {
		return nil
	}
	_, err := a.batch.tx.Exec(ctx, `
		INSERT INTO operation_pause (tenant_id, operation_id, recorded_at, schedule_id, paused_at, was_paused, until_before, note_before, sync_before)
		SELECT $1, $2, $3, n.*
		FROM unnest($4::bigint[], $5::timestamptz[], $6::boolean[], $7::timestamptz[], $8::text[], $9::boolean[]) n
		ON CONFLICT (tenant_id, schedule_id) DO UPDATE
		SET operation_id = excluded.operation_id, recorded_at = excluded.recorded_at, paused_at = excluded.paused_at, was_paused = excluded.was_paused,
			until_before = excluded.until_before, note_before = excluded.note_before, sync_before = excluded.sync_before`,
		a.batch.tenant, a.asked.operation.ID, a.batch.now,
		each(a.pauses, func(p *recordedPause) int64 { return p.ScheduleID }), each(a.pauses, func(p *recordedPause) time.Time { return p.PausedAt }),
		each(a.pauses, func(p *recordedPause) bool { return p.WasPaused }), each(a.pauses, func(p *recordedPause) *time.Time { return p.UntilBefore }),
		each(a.pauses, func(p *recordedPause) *string { return p.NoteBefore }), each(a.pauses, func(p *recordedPause) bool { return p.SyncBefore }))
	if err != nil {
		return fmt.Errorf("record what an operation paused: %w", err)
	}
	return nil
}

// undone returns the number of the operation that a filter names, or 0.
func (a *Actions) undone(operation string) (int64, error) {
	if operation == "" {
		return 0, nil
	}
	number, ok := a.Schedules.IDs.ParseOperation(operation)
	if !ok {
		return 0, fmt.Errorf("%q is the name of no operation", operation)
	}
	return number, nil
}

// pausedHere selects the schedules s that operation $2 of tenant $1 paused and that nobody has resumed or paused since.
const pausedHere = `
	operation_pause o
	JOIN schedule s ON s.tenant_id = o.tenant_id AND s.id = o.schedule_id AND s.status = 'paused' AND s.paused_at = o.paused_at
	WHERE o.tenant_id = $1 AND o.operation_id = $2`

// pausedBy returns the next schedules that an operation paused and that nobody has resumed or paused since, in the order of their numbers.
func pausedBy(ctx context.Context, tx pgx.Tx, tenant tenants.ID, operation, after int64, limit int) ([]candidate, error) {
	return collectCandidates(ctx, tx, `
		SELECT `+candidateColumns+`, true AS matches
		FROM `+pausedHere+` AND o.schedule_id > $3
		ORDER BY o.schedule_id
		LIMIT $4`, []any{tenant, operation, after, limit})
}

// stillPaused returns the locked rows that are still as the operation that is undone has paused them; all rows if none is undone.
func (a *acting) stillPaused(ctx context.Context, rows []*row) ([]*row, error) {
	if a.asked.undoes == 0 {
		return rows, nil
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	found, _ := a.batch.tx.Query(ctx, `
		SELECT schedule_id, paused_at, was_paused, until_before, note_before, sync_before
		FROM operation_pause
		WHERE tenant_id = $1 AND operation_id = $2 AND schedule_id = ANY($3)`, a.batch.tenant, a.asked.undoes, ids) // CollectRows reports the error
	pauses, err := pgx.CollectRows(found, pgx.RowToStructByName[recordedPause])
	if err != nil {
		return nil, fmt.Errorf("read what an operation paused: %w", err)
	}
	a.recorded = make(map[int64]recordedPause, len(pauses))
	for _, p := range pauses {
		a.recorded[p.ScheduleID] = p
	}
	return slices.DeleteFunc(rows, func(r *row) bool {
		p, found := a.recorded[r.ID]
		return !found || r.Status != policy.Paused || !r.PausedAt.Equal(p.PausedAt)
	}), nil
}
