package schedules

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// delaysLeft are the cohorts with fixed_delay that rows of a batch have left.
type delaysLeft struct {
	shards  []int16
	cohorts []int64
}

// lockDelays is lockDelay for those of the rows that have fixed_delay or get it by their lines.
func (l *load) lockDelays(ctx context.Context, rows []*row, ords map[int64]int) error {
	byID := map[int64]*row{}
	var ids []int64
	for _, r := range rows {
		get := l.items[ords[r.ID]].spec.Intervals
		if r.delayed() || r.DelayAt != nil || len(get) == 1 && get[0].Mode == "fixed_delay" {
			ids, byID[r.ID] = append(ids, r.ID), r
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, _ := l.tx.Query(ctx, `
		SELECT schedule_id, delay_at, delay_left
		FROM schedule_state
		WHERE tenant_id = $1 AND schedule_id = ANY($2)
		ORDER BY schedule_id
		FOR UPDATE`, l.tenant, ids) // ForEachRow reports the error
	var now row
	_, err := pgx.ForEachRow(found, []any{&now.ID, &now.DelayAt, &now.DelayLeft}, func() error {
		r := byID[now.ID]
		r.DelayAt, r.DelayLeft = now.DelayAt, now.DelayLeft
		return nil
	})
	if err != nil {
		return fmt.Errorf("lock states: %w", err)
	}
	return nil
}

// writeDelays keeps in the states of the rows that have or had fixed_delay which ticks are out, and how many are left.
func (l *load) writeDelays(ctx context.Context) error {
	var rows []*row
	for _, w := range l.rows {
		if w.delayed || w.joins && w.timing.alone != nil {
			rows = append(rows, w.row)
		}
	}
	return writeDelays(ctx, l.tx, l.tenant, rows...)
}
