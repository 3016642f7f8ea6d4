package state

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// Delayed is a timed tick of a schedule with fixed_delay that was swept.
type Delayed struct {
	Schedule
	Cohort int64
	At     time.Time
}

// SendDelayed notes that ticks are on their way, and takes them off what is left of their schedules. It returns the cohorts of the
// schedules that have none left.
func SendDelayed(ctx context.Context, tx pgx.Tx, ticks []Delayed) (over []int64, err error) {
	if len(ticks) == 0 {
		return nil, nil
	}
	slices.SortFunc(ticks, func(a, b Delayed) int { return int(a.ID - b.ID) })
	var owners []int32
	var ids, cohorts []int64
	var at []time.Time
	for _, t := range ticks {
		owners, ids, cohorts, at = append(owners, int32(t.Tenant)), append(ids, t.ID), append(cohorts, t.Cohort), append(at, t.At)
	}
	rows, _ := tx.Query(ctx, `
		WITH counted AS (
			UPDATE schedule_state st
			SET delay_at = n.at, delay_left = st.delay_left - 1
			FROM unnest($1::int[], $2::bigint[], $3::timestamptz[], $4::bigint[]) AS n (tenant_id, id, at, cohort_id)
			WHERE st.tenant_id = n.tenant_id AND st.schedule_id = n.id
			RETURNING n.cohort_id, st.delay_left
		)
		SELECT cohort_id FROM counted WHERE delay_left = 0`, owners, ids, at, cohorts) // CollectRows reports the error
	over, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("mark ticks of fixed_delay: %w", err)
	}
	return over, nil
}

// EndDelayed notes that the tick of each schedule has ended, if it is the one on its way, and returns these schedules. A nil time
// stands for no tick.
func EndDelayed(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ids []int64, at []*time.Time) (ended []int64, err error) {
	rows, _ := tx.Query(ctx, `
		UPDATE schedule_state st
		SET delay_at = NULL
		FROM unnest($2::bigint[], $3::timestamptz[]) AS i (id, at)
		WHERE st.tenant_id = $1 AND st.schedule_id = i.id AND st.delay_at IS NOT DISTINCT FROM i.at
		RETURNING st.schedule_id`, tenant, ids, at) // CollectRows reports the error
	ended, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("mark the ends of ticks: %w", err)
	}
	return ended, nil
}

// EndDelays notes that schedules have no tick left.
func EndDelays(b *pgx.Batch, tenant tenants.ID, schedules []int64) {
	b.Queue(`UPDATE schedule_state SET delay_left = 0 WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, schedules)
}
