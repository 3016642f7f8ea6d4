package schedules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// errRaced is another's change between our look and our lock: the transaction is tried again.
var errRaced = errors.New("the schedule changed while it was read")

const mostRaces = 5

// change is who changes schedules of a tenant, when, and within which quotas.
type change struct {
	tenant tenants.ID
	by     string
	now    time.Time
	quotas tenants.Quotas
}

func versionOf(r *row) int64 {
	if r == nil {
		return 0
	}
	return int64(r.Version)
}

// change runs fn in a transaction that holds the shared lock of the schedule's shard, with the schedule's row locked
// (nil where there is none) and the database's clock read under the lock.
func (s *Schedules) change(ctx context.Context, tenant tenants.ID, workflow, key string, fn func(tx pgx.Tx, r *row, shard int16, now time.Time) error) error {
	return s.changeOf(ctx, tenant, workflow, key, false, fn)
}

// changeOf is change of a schedule that may begin to follow its key: the profile of the key stands until the transaction
// ends.
func (s *Schedules) changeOf(ctx context.Context, tenant tenants.ID, workflow, key string, follows bool, fn func(tx pgx.Tx, r *row, shard int16, now time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	spread, err := s.Forecasts.ShardsFor(ctx, tenant)
	if err != nil {
		return err
	}
	for range mostRaces {
		err = postgres.Retry(ctx, func() error { // what it hands out may meet what ends a tick, which locks in another order
			return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
				if follows {
					if err := cohorts.LockKeys(ctx, tx, tenant, cohorts.ToFollow, key); err != nil {
						return err
					}
				}
				r, shard, now, err := lockRow(ctx, tx, tenant, workflow, key, cohorts.ShardFor(tenant, spread, workflow, key))
				if err != nil {
					return err
				}
				return fn(tx, r, shard, now)
			})
		})
		if !errors.Is(err, errRaced) {
			return err
		}
	}
	busy := fault.Unavailable("busy", "the schedule is being changed by others; try again")
	busy.RetryAfter = time.Second
	return busy
}

func lockRow(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflow, key string, newborn int16) (r *row, shard int16, now time.Time, err error) {
	var b pgx.Batch
	b.Queue(`
		SELECT shard, pg_advisory_xact_lock_shared($5, shard)::text
		FROM (SELECT COALESCE((SELECT shard FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = $3), $4::smallint) AS shard) s`,
		tenant, workflow, key, newborn, cohorts.ShardLocks)
	// In a statement of its own: one that waited for the lock would show the others' rows as they were before it.
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = $3 FOR UPDATE`, tenant, workflow, key)
	b.Queue(oneRow, tenant, workflow, key)
	b.Queue(`SELECT ` + postgres.Now)
	results := tx.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	var nothing *string
	if err := results.QueryRow().Scan(&shard, &nothing); err != nil {
		return nil, 0, now, fmt.Errorf("lock shard: %w", err)
	}
	var locked int64
	if err := results.QueryRow().Scan(&locked); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, now, fmt.Errorf("lock schedule: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		return nil, 0, now, fmt.Errorf("read schedule: %w", err)
	}
	if r, err = collectRow(rows); err != nil {
		return nil, 0, now, fmt.Errorf("read schedule: %w", err)
	}
	if err := results.QueryRow().Scan(&now); err != nil {
		return nil, 0, now, fmt.Errorf("read clock: %w", err)
	}
	if r == nil {
		return nil, shard, now.UTC(), nil
	}
	if r.Shard != shard || r.ID != locked { // made anew since we waited for the one that was deleted
		return nil, 0, now, errRaced
	}
	r.wake(now)
	return r, shard, now.UTC(), nil
}
