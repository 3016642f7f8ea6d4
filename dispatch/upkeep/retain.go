package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/tenants"
)

const (
	retainEvery = 10 * time.Minute
	retainLimit = 5 * time.Minute
	retainShare = 70 * time.Second // of each of the four parts
)

// retainArgs are the arguments of the River job that deletes what is past its retention.
type retainArgs struct{}

func (retainArgs) Kind() string { return "retain" }

// Worker returns the worker of River's jobs that delete what is past its retention.
func (k *Keeper) Worker() river.Worker[retainArgs] { return &worker{keeper: k} }

type worker struct {
	river.WorkerDefaults[retainArgs]
	keeper *Keeper
}

func (w *worker) Timeout(*river.Job[retainArgs]) time.Duration { return retainLimit }

func (w *worker) Work(ctx context.Context, _ *river.Job[retainArgs]) error {
	if err := w.keeper.Retain(ctx, time.Now()); err != nil && ctx.Err() == nil {
		w.keeper.log.Error("cannot delete all that is past its retention", "error", err)
	}
	return nil
}

// Retaining returns the periodic job that deletes what is past its retention. River inserts it in one of the processes.
func Retaining() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(retainEvery), func() (river.JobArgs, *river.InsertOpts) {
		return retainArgs{}, &river.InsertOpts{Queue: chunk.WorkLane, MaxAttempts: 1}
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// retained is how far the retention of this process has come: each part of a run continues where the last run stopped.
type retained struct {
	mu       sync.Mutex           // one run at a time
	tenant   tenants.ID           // the last tenant whose dead letters, audit and versions were looked at
	places   retentionPlaces      // of the walks through schedules
	thinned  map[string]string    // by partition: for which tenants it was thinned, and on which date
	thinning map[string]thinPlace // by partition
}

// ages are the quotas of the tenants, which say how long their rows are kept.
type ages struct {
	of      map[tenants.ID]tenants.Quotas
	ids     []tenants.ID // of those tenants, ascending
	longest tenants.Quotas
	unread  bool // the quotas of some tenant cannot be read: it may keep its rows for longer than all others
}

// Ages reads the quotas of all tenants. A tenant whose quotas cannot be read keeps its rows until they can.
func (k *Keeper) Ages(ctx context.Context) (a ages, err error) {
	rows, _ := k.pool.Query(ctx, `SELECT id FROM tenant WHERE erasing_at IS NULL`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return a, fmt.Errorf("read tenants: %w", err)
	}
	a.of = make(map[tenants.ID]tenants.Quotas, len(ids))
	for _, id := range ids {
		q, err := k.quotas(ctx, tenants.ID(id))
		if ctx.Err() != nil {
			return a, fmt.Errorf("read quotas: %w", err)
		}
		if err != nil {
			k.log.Error("a tenant's quotas cannot be read: its rows are kept, and no partition is dropped", "tenant", id, "error", err)
			a.unread = true
			continue
		}
		a.of[tenants.ID(id)] = q
		a.longest.TickRetentionDays = max(a.longest.TickRetentionDays, q.TickRetentionDays)
		a.longest.AttemptRetentionDays = max(a.longest.AttemptRetentionDays, q.AttemptRetentionDays)
	}
	if len(a.of) == 0 {
		a.longest = tenants.Defaults()
	}
	a.ids = slices.Sorted(maps.Keys(a.of))
	return a, nil
}

// days returns for how many days a tenant keeps rows of a partitioned table.
func days(table string, q tenants.Quotas) int {
	if table == "attempt" {
		return q.AttemptRetentionDays
	}
	return q.TickRetentionDays
}

func ago(now time.Time, days int) time.Time { return now.UTC().Add(-time.Duration(days) * record.Day) }

// Retain drops the partitions that no tenant keeps, and deletes in batches what a tenant or a schedule does not keep. Each part has
// its own share of the time, so that the last one gets it too.
func (k *Keeper) Retain(ctx context.Context, now time.Time) error {
	k.retained.mu.Lock()
	defer k.retained.mu.Unlock()
	a, err := k.Ages(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, part := range []struct {
		name string
		do   func(context.Context, ages, time.Time) error
	}{{"drop days", k.DropDays}, {"retain tenants", k.retainTenants}, {"retain schedules", k.retainSchedules}, {"thin days", k.ThinDays}} {
		err := k.RunTask(ctx, Task{Name: part.name, Limit: retainShare, Some: whole(func(ctx context.Context) error { return part.do(ctx, a, now) })})
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			k.log.Info("a part of the retention used up its time: the next run continues", "part", part.name)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// inBatches runs a statement until it changes fewer than record.MostCleared rows. The last argument of the statement is that limit.
func (k *Keeper) inBatches(ctx context.Context, sql string, args ...any) error {
	for {
		done, err := k.pool.Exec(ctx, sql, append(args, record.MostCleared)...)
		if err != nil || done.RowsAffected() < record.MostCleared {
			return err
		}
	}
}

// countBatches is inBatches for a statement that returns how many rows it changed.
func (k *Keeper) countBatches(ctx context.Context, sql string, args ...any) error {
	for {
		var n int64
		err := k.pool.QueryRow(ctx, sql, append(args, record.MostCleared)...).Scan(&n)
		if err != nil || n < record.MostCleared {
			return err
		}
	}
}

// retainTenants deletes what tenants do not keep, from the tenant after the last run's to that one. A tenant that fails does not stop
// the others.
func (k *Keeper) retainTenants(ctx context.Context, a ages, now time.Time) error {
	next, _ := slices.BinarySearch(a.ids, k.retained.tenant+1)
	var errs []error
	for _, id := range slices.Concat(a.ids[next:], a.ids[:next]) {
		if err := k.retainTenant(ctx, id, a.of[id], now); err != nil {
			errs = append(errs, fmt.Errorf("tenant %d: %w", id, err))
		}
		if ctx.Err() != nil {
			break
		}
		k.retained.tenant = id
	}
	return errors.Join(errs...)
}

// retainTenant deletes a tenant's dead letters, audit, daily use and versions of schedules that are past their retention. A version
// stays as long as a tick, a dead letter or the audit may name it.
func (k *Keeper) retainTenant(ctx context.Context, tenant tenants.ID, q tenants.Quotas, now time.Time) error {
	err := k.inBatches(ctx, `
		DELETE FROM dead_letter
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (
			SELECT ctid FROM dead_letter WHERE tenant_id = $1 AND nominal_at < $2 AND failed_at < $2 LIMIT $3))`,
		tenant, ago(now, q.DeadLetterRetentionDays))
	if err != nil {
		return fmt.Errorf("delete dead letters: %w", err)
	}
	err = k.inBatches(ctx, `
		DELETE FROM audit
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM audit WHERE tenant_id = $1 AND at < $2 LIMIT $3))`,
		tenant, ago(now, q.AuditRetentionDays))
	if err != nil {
		return fmt.Errorf("delete the audit: %w", err)
	}
	err = k.inBatches(ctx, `
		DELETE FROM daily_use
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM daily_use WHERE tenant_id = $1 AND day < $2 LIMIT $3))`,
		tenant, record.DayOf(ago(now, q.AuditRetentionDays)))
	if err != nil {
		return fmt.Errorf("delete daily use: %w", err)
	}
	if err := k.retainRevisions(ctx, tenant, q, now); err != nil {
		return err
	}
	return k.recountBytes(ctx, tenant)
}
