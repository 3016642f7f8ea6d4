package schedules

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// lockDelays is lockDelay for those of the rows that have fixed_delay or get it by their lines.
func (l *load) lockDelays(ctx context.Context, rows []*row) error {
	gets := map[int64]bool{}
	for _, it := range l.items {
		if len(it.spec.Intervals) == 1 && it.spec.Intervals[0].Mode == "fixed_delay" {
			gets[it.id] = true
		}
	}
	byID := map[int64]*row{}
	var ids []int64
	for _, r := range rows {
		if gets[r.ID] || r.delayed() || r.DelayAt != nil || strings.Contains(r.Spec, "fixed_delay") {
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

// leaveDelays disarms the cohorts with fixed_delay that rows have left.
func (l *load) leaveDelays(ctx context.Context) error {
	var shards []int16
	var cohorts []int64
	for _, m := range l.ends {
		if m.alone != nil {
			shards, cohorts = append(shards, m.alone.Shard), append(cohorts, m.cohort)
		}
	}
	return leaveDelays(ctx, l.tx, l.tenant, shards, cohorts)
}

// writeDelays keeps in the states of the rows that have or had fixed_delay which ticks are out, and how many are left.
func (l *load) writeDelays(ctx context.Context) error {
	var rows []*row
	for _, w := range l.rows {
		if w.joins && w.timing.alone != nil {
			rows = append(rows, w.row)
		}
	}
	for _, m := range l.ends {
		if m.alone != nil {
			rows = append(rows, m.alone)
		}
	}
	return writeDelays(ctx, l.tx, l.tenant, rows...)
}
