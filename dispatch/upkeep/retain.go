package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
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
func (k *Keeper) Worker() river.Worker[retainArgs] { return &worker{retention: k.retention} }

type worker struct {
	river.WorkerDefaults[retainArgs]
	retention *retention
}

func (w *worker) Timeout(*river.Job[retainArgs]) time.Duration { return retainLimit }

func (w *worker) Work(ctx context.Context, _ *river.Job[retainArgs]) error {
	if err := w.retention.run(ctx, time.Now()); err != nil && ctx.Err() == nil {
		w.retention.log.Error("cannot delete all that is past its retention", "error", err)
	}
	return nil
}

// Retaining returns the periodic job that deletes what is past its retention. River inserts it in one of the processes.
func Retaining() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(retainEvery), func() (river.JobArgs, *river.InsertOpts) {
		return retainArgs{}, &river.InsertOpts{Queue: chunk.WorkLane, MaxAttempts: 1}
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// retention deletes what tenants and schedules do not keep. Each of its parts continues where its last run stopped.
type retention struct {
	mu     sync.Mutex // one run at a time
	pool   *pgxpool.Pool
	log    *slog.Logger
	quotas record.Quotas
	runner *taskRunner

	days      *dayPartitions
	tenants   tenantRetention
	schedules scheduleRetention
	thinner   thinner
}

func newRetention(c Config, runner *taskRunner, days *dayPartitions) *retention {
	return &retention{
		pool: c.Pool, log: c.Log, quotas: c.Quotas, runner: runner, days: days,
		tenants: tenantRetention{pool: c.Pool, log: c.Log}, schedules: scheduleRetention{pool: c.Pool, log: c.Log, rarely: c.Rarely},
		thinner: thinner{pool: c.Pool, thinned: map[string]string{}, thinning: map[string]thinPlace{}},
	}
}

// ages are the quotas of the tenants, which say how long their rows are kept.
type ages struct {
	of      map[tenants.ID]tenants.Quotas
	ids     []tenants.ID // of those tenants, ascending
	longest tenants.Quotas
	unread  bool // the quotas of some tenant cannot be read: it may keep its rows for longer than all others
}

// ages reads the quotas of all tenants. A tenant whose quotas cannot be read keeps its rows until they can.
func (r *retention) ages(ctx context.Context) (a ages, err error) {
	rows, _ := r.pool.Query(ctx, `SELECT id FROM tenant WHERE erasing_at IS NULL`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return a, fmt.Errorf("read tenants: %w", err)
	}
	a.of = make(map[tenants.ID]tenants.Quotas, len(ids))
	for _, id := range ids {
		q, err := r.quotas(ctx, tenants.ID(id))
		if ctx.Err() != nil {
			return a, fmt.Errorf("read quotas: %w", err)
		}
		if err != nil {
			r.log.Error("a tenant's quotas cannot be read: its rows are kept, and no partition is dropped", "tenant", id, "error", err)
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

// run drops the partitions that no tenant keeps, and deletes in batches what a tenant or a schedule does not keep. Each part has
// its own share of the time, so that the last one gets it too.
func (r *retention) run(ctx context.Context, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, err := r.ages(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, part := range []struct {
		name string
		do   func(context.Context, ages, time.Time) error
	}{{"drop days", r.days.drop}, {"retain tenants", r.tenants.retain}, {"retain schedules", r.schedules.retain}, {"thin days", r.thinner.thin}} {
		err := r.runner.run(ctx, Task{Name: part.name, Limit: retainShare, Some: whole(func(ctx context.Context) error { return part.do(ctx, a, now) })})
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			r.log.Info("a part of the retention used up its time: the next run continues", "part", part.name)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// inBatches runs a statement until it changes fewer than record.MostCleared rows. The last argument of the statement is that limit.
func inBatches(ctx context.Context, db postgres.DB, sql string, args ...any) error {
	for {
		done, err := db.Exec(ctx, sql, append(args, record.MostCleared)...)
		if err != nil || done.RowsAffected() < record.MostCleared {
			return err
		}
	}
}

// countBatches is inBatches for a statement that returns how many rows it changed.
func countBatches(ctx context.Context, db postgres.DB, sql string, args ...any) error {
	for {
		var n int64
		err := db.QueryRow(ctx, sql, append(args, record.MostCleared)...).Scan(&n)
		if err != nil || n < record.MostCleared {
			return err
		}
	}
}

// tenantRetention deletes what tenants do not keep, except for their days of the record.
type tenantRetention struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	last tenants.ID // the last tenant that was looked at
}

// retain deletes what tenants do not keep, from the tenant after the last run's to that one. A tenant that fails does not stop
// the others.
func (r *tenantRetention) retain(ctx context.Context, a ages, now time.Time) error {
	next, _ := slices.BinarySearch(a.ids, r.last+1)
	errs := []error{r.retainPlatform(ctx, now)} // first, since many tenants can use up the time
	for _, id := range slices.Concat(a.ids[next:], a.ids[:next]) {
		if err := r.retainTenant(ctx, id, a.of[id], now); err != nil {
			errs = append(errs, fmt.Errorf("tenant %d: %w", id, err))
		}
		if ctx.Err() != nil {
			break
		}
		r.last = id
	}
	return errors.Join(errs...)
}

// platformDays is for how many days the audit of the platform is kept.
const platformDays = 2 * 366

// retainPlatform deletes the audit of the platform that is past its retention.
func (r *tenantRetention) retainPlatform(ctx context.Context, now time.Time) error {
	err := inBatches(ctx, r.pool, `
		DELETE FROM platform_audit
		WHERE ctid = ANY (ARRAY (SELECT ctid FROM platform_audit WHERE at < $1 LIMIT $2))`, ago(now, platformDays))
	if err != nil {
		return fmt.Errorf("delete the audit of the platform: %w", err)
	}
	return nil
}

// retainTenant deletes a tenant's dead letters, audit, daily use and versions of schedules that are past their retention. A version
// stays as long as a tick, a dead letter or the audit may name it.
func (r *tenantRetention) retainTenant(ctx context.Context, tenant tenants.ID, q tenants.Quotas, now time.Time) error {
	err := inBatches(ctx, r.pool, `
		DELETE FROM dead_letter
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (
			SELECT ctid FROM dead_letter WHERE tenant_id = $1 AND nominal_at < $2 AND failed_at < $2 LIMIT $3))`,
		tenant, ago(now, q.DeadLetterRetentionDays))
	if err != nil {
		return fmt.Errorf("delete dead letters: %w", err)
	}
	err = inBatches(ctx, r.pool, `
		DELETE FROM audit
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM audit WHERE tenant_id = $1 AND at < $2 LIMIT $3))`,
		tenant, ago(now, q.AuditRetentionDays))
	if err != nil {
		return fmt.Errorf("delete the audit: %w", err)
	}
	err = inBatches(ctx, r.pool, `
		DELETE FROM daily_use
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM daily_use WHERE tenant_id = $1 AND day < $2 LIMIT $3))`,
		tenant, record.DayOf(ago(now, q.AuditRetentionDays)))
	if err != nil {
		return fmt.Errorf("delete daily use: %w", err)
	}
	if err := r.retainRevisions(ctx, tenant, q, now); err != nil {
		return err
	}
	return r.recountBytes(ctx, tenant)
}
