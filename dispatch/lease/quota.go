package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillonhq/carillon/internal/postgres"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
)

// parallelPolls is more than the number of a tenant's polls that can be in a transaction at a time. While the quota has room for so many
// polls of the same size, polls share the lock. Nearer to the quota, each poll takes the lock exclusively.
const parallelPolls = 1000

// errCrowded is the error of a poll that shared the lock and found the quota nearly used up. It must take the lock exclusively.
var errCrowded = errors.New("the quota leased is nearly used up")

// alone reports whether a poll must take the lock exclusively if the tenant's workers hold that many ticks.
func (r leaseRequest) alone(held int) bool { return r.quota-held < parallelPolls*r.max }

// leaseRoom returns how many ticks a poll may lease, at most r.max. It takes the lock until the transaction ends, and then counts in a
// second statement, which sees the leases that were committed while the first one waited.
func leaseRoom(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest) (room int, err error) {
	lock := `SELECT pg_advisory_xact_lock_shared($1, $2)`
	if r.exclusive {
		lock = `SELECT pg_advisory_xact_lock($1, $2)`
	}
	var b pgx.Batch
	var held int
	b.Queue(postgres.GenericPlans)
	b.Queue(lock, postgres.LeaseLocks, int32(tenant))
	b.Queue(record.LeasedTicks, tenant).QueryRow(func(row pgx.Row) error { return row.Scan(&held) })
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("count leased ticks: %w", err)
	}
	if !r.exclusive && r.alone(held) {
		return 0, errCrowded
	}
	return min(r.max, max(0, r.quota-held)), nil
}

// Leased returns the meter of the quota leased: how many ticks a tenant's workers hold. db must show the tenant's rows.
func Leased(db postgres.DB) tenants.Meter {
	return func(ctx context.Context, tenant tenants.ID) (int, error) { return countLeased(ctx, db, tenant) }
}

func countLeased(ctx context.Context, db postgres.DB, tenant tenants.ID) (n int, err error) {
	err = db.QueryRow(ctx, record.LeasedTicks, tenant).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count leased ticks: %w", err)
	}
	return n, nil
}
