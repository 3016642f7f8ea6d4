package schedules

import (
	"context"
	"fmt"
	"strings"

	"github.com/carillonhq/carillon/calendar"
	"github.com/jackc/pgx/v5"
)

// hasDelay reports whether a spec has fixed_delay.
func hasDelay(spec calendar.Spec) bool {
	return len(spec.Intervals) == 1 && spec.Intervals[0].Mode == "fixed_delay"
}

// lockDelays locks the states of those of the rows that have fixed_delay, or get it, and reads whether a tick of each is out.
func (b *batch) lockDelays(ctx context.Context, rows []*row, gets map[int64]bool) error {
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
	found, _ := b.tx.Query(ctx, `
		SELECT schedule_id, delay_at, delay_left
		FROM schedule_state
		WHERE tenant_id = $1 AND schedule_id = ANY($2)
		ORDER BY schedule_id
		FOR UPDATE`, b.tenant, ids) // ForEachRow reports the error
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
func (b *batch) leaveDelays(ctx context.Context) error {
	var shards []int16
	var cohorts []int64
	for _, m := range b.writes.left {
		if m.alone != nil {
			shards, cohorts = append(shards, m.alone.Shard), append(cohorts, m.cohort)
		}
	}
	return leaveDelays(ctx, b.tx, b.tenant, shards, cohorts)
}

// queueDelays writes, into the states of the rows that have or had fixed_delay, which tick is out and how many are left.
func (ws *writes) queueDelays(q *pgx.Batch, by change) {
	var rows []*row
	for _, w := range ws.rows {
		if w.joins && w.timing.alone != nil {
			rows = append(rows, w.row)
		}
	}
	for _, m := range ws.left {
		if m.alone != nil {
			rows = append(rows, m.alone)
		}
	}
	queueDelays(q, by.tenant, rows)
}
