package lease

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
)

const (
	leasesEvery = 500 * time.Millisecond
	mostExpired = 20
)

// Expiry ends the attempts of leases whose time is over. Their ticks are delivered again.
type Expiry struct {
	pool    *pgxpool.Pool
	horizon *cluster.Horizon
	finish  *finish.Finisher
	ends    cluster.LowEnd
	log     *slog.Logger
}

// NewExpiry returns an Expiry of all tenants' leases.
func NewExpiry(pool *pgxpool.Pool, horizon *cluster.Horizon, finisher *finish.Finisher, log *slog.Logger) *Expiry {
	return &Expiry{pool: pool, horizon: horizon, finish: finisher, ends: newLeaseEnds(), log: log}
}

// Run ends leases until ctx ends.
func (x *Expiry) Run(ctx context.Context) {
	loop.Every(ctx, x.log, leasesEvery, "end leases", x.EndDueLeases)
}

// EndDueLeases ends leases until none is due. It returns the first error.
func (x *Expiry) EndDueLeases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		if sabotage.LeasesNeverEnd.On() {
			return nil
		}
		from, first, err := x.ends.Look(ctx, x.pool, x.horizon)
		if err != nil || first.IsZero() {
			return err
		}
		n, err := x.endSomeLeases(ctx, from)
		if err != nil || n < mostExpired {
			return err
		}
	}
}

// expiredLease is a lease with a tick whose time may be over: UntilAt has passed.
type expiredLease struct {
	ID       int64
	TenantID tenants.ID
	Worker   string
	LeasedAt time.Time
	UntilAt  time.Time
	Ticks    []byte
}

// endSomeLeases ends up to mostExpired due leases whose end is at from or later, and returns how many it looked at.
func (x *Expiry) endSomeLeases(ctx context.Context, from time.Time) (n int, err error) {
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, x.pool, func(tx pgx.Tx) error {
			var expired []*expiredLease
			var b pgx.Batch
			b.Queue(postgres.GenericPlans)
			b.Queue(`
				SELECT id, tenant_id, worker, leased_at, until_at, ticks
				FROM lease
				WHERE until_at <= (SELECT `+postgres.Now+`) AND until_at >= $2
				ORDER BY until_at
				LIMIT $1
				FOR UPDATE SKIP LOCKED`, mostExpired, from).Query(func(rows pgx.Rows) (err error) {
				expired, err = pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[expiredLease])
				return err
			})
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return fmt.Errorf("read ended leases: %w", err)
			}
			n = len(expired)
			for _, l := range expired {
				if err := x.endLease(ctx, tx, l); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return n, err
}

// endLease ends the attempts of a lease whose time is over. If a heartbeat has lengthened some of them, the lease goes on until the
// first of those ends.
func (x *Expiry) endLease(ctx context.Context, tx pgx.Tx, l *expiredLease) error {
	tries, err := unpackLease(l.Ticks)
	if err != nil {
		return fmt.Errorf("lease %d: %w", l.ID, err)
	}
	until := make([]time.Time, len(tries))
	for i := range until {
		until[i] = l.UntilAt
	}
	var slot int16
	var end, now time.Time
	rows, err := tx.Query(ctx, `SELECT slot, until_at FROM lease_beat WHERE lease_id = $1`, l.ID)
	if err != nil {
		return err
	}
	if _, err = pgx.ForEachRow(rows, []any{&slot, &end}, func() error {
		until[slot] = end
		return nil
	}); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return err
	}
	var endings []finish.Ending
	var next time.Time
	for i, t := range tries {
		if until[i].After(now) {
			if next.IsZero() || until[i].Before(next) {
				next = until[i]
			}
			continue
		}
		endings = append(endings, finish.Ending{
			TickKey: t.TickKey, Attempt: t.Attempt, Outcome: finish.Lost, Err: new("the lease ended without a word of the worker"),
			Worker: &l.Worker, Started: &l.LeasedAt,
		})
	}
	if _, err := x.finish.End(ctx, tx, l.TenantID, now.UTC(), endings); err != nil {
		return err
	}
	if next.IsZero() {
		_, err = tx.Exec(ctx, `DELETE FROM lease WHERE id = $1 AND tenant_id = $2`, l.ID, l.TenantID)
		return err
	}
	// The ends of ended slots stay before until_at: their attempts are over, and their tokens are stale.
	_, err = tx.Exec(ctx, `UPDATE lease SET until_at = $3 WHERE id = $1 AND tenant_id = $2`, l.ID, l.TenantID, next)
	return err
}

// newLeaseEnds returns the low end of the index of leases by their end.
func newLeaseEnds() cluster.LowEnd {
	return cluster.LowEnd{
		Index: "lease_until",
		First: `SELECT (SELECT until_at FROM lease WHERE until_at <= (SELECT ` + postgres.Now + `) AND until_at >= $1 ORDER BY until_at LIMIT 1)`,
		Below: `SELECT (SELECT until_at FROM lease WHERE until_at >= $1 AND until_at < $2 ORDER BY until_at LIMIT 1)`,
	}
}
