package schedules

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// DeleteLocked deletes schedules that LockRows has locked in the caller's transaction, and returns how many there were. The caller
// records the change in the audit.
func (s *Schedules) DeleteLocked(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ids []int64, by string) (n int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	b := s.newBatch(tx, change{tenant: tenant, by: by})
	rows, err := b.lockRows(ctx, ids)
	if err != nil {
		return 0, err
	}
	if err := b.prepare(ctx, rows, nil); err != nil {
		return 0, err
	}
	for _, r := range rows {
		if r.CohortID != nil {
			t, err := r.timing(ctx, tx, s.Timings, tenant)
			if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
				return 0, err
			}
			b.leave(r, t)
		}
		b.writes.gone = append(b.writes.gone, r)
	}
	return len(rows), b.write(ctx)
}
