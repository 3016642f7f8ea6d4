package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// leaseLocks is the class of the advisory locks that keep parallel polls of a tenant within the quota leased.
const leaseLocks = 0x4341_4c53

// parallelPolls is more than the polls of a tenant that can be inside a transaction at a time. While the quota has room
// for that many polls of the same size, polls share the lock; nearer to the quota each poll has the lock alone.
const parallelPolls = 1000

// errCrowded reports that a poll shared the lock with others and came too near to the quota for that.
var errCrowded = errors.New("the quota leased is nearly used up")

// alone reports whether a poll must have the lock to itself if the tenant's workers hold that many ticks.
func (r leaseRequest) alone(held int) bool { return r.quota-held < parallelPolls*r.max }

// leaseRoom returns how many ticks a poll may lease, at most r.max. It locks until the transaction ends, and then counts
// in a second statement, which sees the leases that were committed while the first one waited.
func leaseRoom(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest) (room int, err error) {
	lock := `SELECT pg_advisory_xact_lock_shared($1, $2)`
	if r.exclusive {
		lock = `SELECT pg_advisory_xact_lock($1, $2)`
	}
	var b pgx.Batch
	var held int
	b.Queue(lock, leaseLocks, int32(tenant))
	b.Queue(record.LeasedTicks, tenant).QueryRow(func(row pgx.Row) error { return row.Scan(&held) })
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("count leased ticks: %w", err)
	}
	if !r.exclusive && r.alone(held) {
		return 0, errCrowded
	}
	return min(r.max, max(0, r.quota-held)), nil
}

func newLeaseEnds() cluster.LowEnd {
	return cluster.LowEnd{
		Index: "lease_until",
		First: `SELECT (SELECT until_at FROM lease WHERE until_at <= (SELECT ` + postgres.Now + `) AND until_at >= $1 ORDER BY until_at LIMIT 1)`,
		Below: `SELECT (SELECT until_at FROM lease WHERE until_at >= $1 AND until_at < $2 ORDER BY until_at LIMIT 1)`,
	}
}
