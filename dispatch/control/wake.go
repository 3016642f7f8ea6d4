package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	wakeEvery    = 500 * time.Millisecond
	wakeLimit    = 20 * time.Second
	mostWakes    = 100  // rows of wake read at once
	mostWoken    = 1000 // ticks in one transaction
	MostForsaken = 1000 // waits of parked ticks that upkeep reads at once
)

// Waker wakes parked ticks whose wait has ended, and the queued turns of tenants that fire again.
type Waker struct {
	pool  *pgxpool.Pool
	sweep *sweep.Sweeper
	log   *slog.Logger
}

// NewWaker returns a Waker of all tenants' ticks.
func NewWaker(pool *pgxpool.Pool, sweeper *sweep.Sweeper, log *slog.Logger) *Waker {
	return &Waker{pool: pool, sweep: sweeper, log: log}
}

// Run wakes parked ticks until ctx ends.
func (k *Waker) Run(ctx context.Context) {
	loop.Every(ctx, k.log, wakeEvery, "wake parked ticks", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, wakeLimit)
		defer cancel()
		return k.WakeAll(ctx)
	})
}

// WakeAll wakes a batch of parked ticks for each row of wake, and repeats that until none is left that no other process has locked.
func (k *Waker) WakeAll(ctx context.Context) error {
	for {
		rows, _ := k.pool.Query(ctx, `SELECT tenant_id, waits_for FROM wake ORDER BY tenant_id, waits_for LIMIT $1`, mostWakes) // CollectRows reports the error
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[record.ParkedFor])
		if err != nil {
			return fmt.Errorf("look for wakes: %w", err)
		}
		var errs []error
		mine := 0
		for _, w := range all {
			if err := k.wakeReleased(ctx, w); err != nil {
				errs = append(errs, err)
				continue
			}
			taken, err := k.wakeSome(ctx, w)
			if taken {
				mine++
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("wake ticks of tenant %d that wait for %q: %w", w.Tenant, w.For, err))
			}
		}
		if mine > 0 {
			k.sweep.Wake()
		}
		if mine == 0 || len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
}

// wakeSome wakes the next batch of parked ticks, in the order of their nominal times, and deletes the row of wake after the last one.
// It skips ticks that another transaction has locked: that one takes them. taken is false if another process has locked the row of
// wake.
func (k *Waker) wakeSome(ctx context.Context, w record.ParkedFor) (taken bool, err error) {
	woken := 0
	err = pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
		// A generic plan would read and sort all ticks that are parked for the same cause.
		if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_custom_plan`); err != nil {
			return err
		}
		var at time.Time
		var id int64
		var seq int32
		var first bool
		err := tx.QueryRow(ctx, `
			SELECT GREATEST(nominal_at, '0001-01-01'), schedule_id, seq, nominal_at = '-infinity'
			FROM wake
			WHERE tenant_id = $1 AND waits_for = $2
			FOR UPDATE SKIP LOCKED`, w.Tenant, w.For).Scan(&at, &id, &seq, &first)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		taken = true
		if first && w.For == "" {
			if err := wakeTurns(ctx, tx, w.Tenant); err != nil {
				return err
			}
		}
		perSecond, err := releasedRate(ctx, tx, w)
		if err != nil {
			return err
		}
		last, n, err := unpark(ctx, tx, w, parkedPlace{at, id, seq, perSecond})
		if err != nil {
			return err
		}
		if woken = n; n < mostWoken {
			_, err = tx.Exec(ctx, `DELETE FROM wake WHERE tenant_id = $1 AND waits_for = $2`, w.Tenant, w.For)
			return err
		}
		_, err = tx.Exec(ctx, `
			UPDATE wake
			SET nominal_at = $3, schedule_id = $4, seq = $5
			WHERE tenant_id = $1 AND waits_for = $2`, w.Tenant, w.For, last.At, last.Schedule, last.Seq)
		return err
	})
	if err == nil && taken {
		k.sweep.Reset(w.Tenant)
		if workflow, is := w.Held(); is {
			k.sweep.ChargeWorkflow(w.Tenant, workflow, woken)
		}
	}
	return taken, err
}

// wakeReleased makes the cohorts of a released workflow due that were due while it was held. The change that released it waited for the
// sweeps that set them aside, so all of them are seen.
func (k *Waker) wakeReleased(ctx context.Context, w record.ParkedFor) error {
	workflow, is := w.Held()
	for is {
		var shard int16
		err := k.pool.QueryRow(ctx, `SELECT shard FROM cohort WHERE tenant_id = $1 AND workflow = $2 AND held LIMIT 1`, w.Tenant, workflow).Scan(&shard)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for cohorts of a released workflow: %w", err)
		}
		err = pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
			var b pgx.Batch
			cohorts.LockShard(&b, shard)
			b.Queue(`
				UPDATE cohort
				SET held = false, due_at = CASE WHEN due_at = 'infinity' THEN `+postgres.Now+` ELSE due_at END
				WHERE shard = $3 AND id = ANY (ARRAY (SELECT id FROM cohort WHERE tenant_id = $1 AND workflow = $2 AND held AND shard = $3 LIMIT $4))`,
				w.Tenant, workflow, shard, mostWoken)
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return err
			}
			return cohorts.WakeSweep(ctx, tx, shard)
		})
		if err != nil {
			return fmt.Errorf("wake cohorts of a released workflow: %w", err)
		}
	}
	return nil
}

// wakeTurns makes a tenant's queued turns due, in all shards.
func wakeTurns(ctx context.Context, tx pgx.Tx, tenant tenants.ID) error {
	_, err := tx.Exec(ctx, `
		UPDATE fair_turn
		SET due_at = `+postgres.Now+`
		WHERE shard = ANY (ARRAY (SELECT generate_series(0, 63)::smallint)) AND tenant_id = $1`, tenant)
	if err != nil {
		return fmt.Errorf("wake turns: %w", err)
	}
	return nil
}

// unparkSome makes the next ticks of tenant $1 that are parked for $2 due.
const unparkSome = `
		WITH next AS MATERIALIZED (
			SELECT ctid, nominal_at, schedule_id, seq
			FROM delayed
			WHERE tenant_id = $1 AND waits_for = $2 AND (nominal_at, schedule_id, seq) > ($3, $4, $5)
			ORDER BY nominal_at, schedule_id, seq
			LIMIT $6
			FOR UPDATE SKIP LOCKED
		), woken AS (
			UPDATE delayed
			SET due_at = ` + postgres.Now + ` + CASE WHEN $7::int IS NULL THEN interval '0' ELSE n.place * interval '1 second' / $7 END, waits_for = NULL
			FROM (SELECT ctid AS row, row_number() OVER (ORDER BY nominal_at, schedule_id, seq) - 1 AS place FROM next) n
			WHERE tenant_id = $1 AND delayed.ctid = n.row AND delayed.ctid = ANY (ARRAY (SELECT ctid FROM next))
		)
		SELECT schedule_id, nominal_at, seq, count(*) OVER ()
		FROM next
		ORDER BY nominal_at DESC, schedule_id DESC, seq DESC
		LIMIT 1`

// parkedPlace is where the next batch of parked ticks begins, and how many of them are due a second; nil: all at once.
type parkedPlace struct {
	at        time.Time
	id        int64
	seq       int32
	perSecond *int32
}

// releasedRate returns the rate of a workflow that was released; nil: it has none, or ticks wait for something else.
func releasedRate(ctx context.Context, tx pgx.Tx, w record.ParkedFor) (perSecond *int32, err error) {
	workflow, is := w.Held()
	if !is {
		return nil, nil
	}
	err = tx.QueryRow(ctx, `SELECT (SELECT rate FROM workflow WHERE tenant_id = $1 AND name = $2)`, w.Tenant, workflow).Scan(&perSecond)
	if err != nil {
		return nil, fmt.Errorf("read the rate of a released workflow: %w", err)
	}
	return perSecond, nil
}

// unpark makes parked ticks with keys after a place due. It returns the last of them, and how many there are.
func unpark(ctx context.Context, tx pgx.Tx, w record.ParkedFor, from parkedPlace) (last ident.TickKey, n int, err error) {
	rows, err := tx.Query(ctx, unparkSome, w.Tenant, w.For, from.at, from.id, from.seq, mostWoken, from.perSecond)
	if err != nil {
		return last, 0, fmt.Errorf("wake ticks: %w", err)
	}
	if _, err := pgx.ForEachRow(rows, []any{&last.Schedule, &last.At, &last.Seq, &n}, func() error { return nil }); err != nil {
		return last, 0, fmt.Errorf("wake ticks: %w", err)
	}
	return last, n, nil
}
