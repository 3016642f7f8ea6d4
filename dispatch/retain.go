package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/tenants"
)

const (
	retainEvery = 10 * time.Minute
	retainLimit = 5 * time.Minute
)

// retainArgs are the arguments of the River job that deletes what is past its retention.
type retainArgs struct{}

func (retainArgs) Kind() string { return "retain" }

type retainWorker struct {
	river.WorkerDefaults[retainArgs]
	dispatch *Dispatch
}

func (w *retainWorker) Timeout(*river.Job[retainArgs]) time.Duration { return retainLimit }

func (w *retainWorker) Work(ctx context.Context, _ *river.Job[retainArgs]) error {
	if err := w.dispatch.retain(ctx, time.Now()); err != nil && ctx.Err() == nil {
		w.dispatch.Log.Error("cannot delete all that is past its retention", "error", err)
	}
	return nil
}

// retaining is the job that River inserts by itself, in one of the processes.
func retaining() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(retainEvery), func() (river.JobArgs, *river.InsertOpts) {
		return retainArgs{}, &river.InsertOpts{Queue: workLane, MaxAttempts: 1}
	}, &river.PeriodicJobOpts{RunOnStart: true})
}

// ages are how long what belongs to each tenant is kept, and the longest and shortest of them.
type ages struct {
	of                map[tenants.ID]tenants.Quotas
	longest, shortest tenants.Quotas
}

func (d *Dispatch) ages(ctx context.Context) (a ages, err error) {
	rows, _ := d.Pool.Query(ctx, `SELECT id FROM tenant`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return a, fmt.Errorf("read tenants: %w", err)
	}
	a = ages{of: map[tenants.ID]tenants.Quotas{}, longest: tenants.Defaults(), shortest: tenants.Defaults()}
	for _, id := range ids {
		q, err := d.Quotas(ctx, tenants.ID(id))
		if err != nil {
			return a, fmt.Errorf("read quotas: %w", err)
		}
		a.of[tenants.ID(id)] = q
		a.longest.TickRetentionDays = max(a.longest.TickRetentionDays, q.TickRetentionDays)
		a.longest.AttemptRetentionDays = max(a.longest.AttemptRetentionDays, q.AttemptRetentionDays)
		a.shortest.TickRetentionDays = min(a.shortest.TickRetentionDays, q.TickRetentionDays)
		a.shortest.AttemptRetentionDays = min(a.shortest.AttemptRetentionDays, q.AttemptRetentionDays)
	}
	return a, nil
}

// days is how many days of a partitioned table a tenant keeps.
func days(table string, q tenants.Quotas) int {
	if table == "attempt" {
		return q.AttemptRetentionDays
	}
	return q.TickRetentionDays
}

func ago(now time.Time, days int) time.Time { return now.UTC().Add(-time.Duration(days) * day) }

// retain drops the partitions that nobody keeps, and deletes in batches what its tenant or schedule does not.
func (d *Dispatch) retain(ctx context.Context, now time.Time) error {
	d.keepers.mu.Lock()
	defer d.keepers.mu.Unlock()
	a, err := d.ages(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, table := range partitioned {
		errs = append(errs, d.retainTable(ctx, table.name, a, now))
	}
	for tenant, q := range a.of {
		errs = append(errs, d.retainTenant(ctx, tenant, q, now))
	}
	return errors.Join(append(errs, d.retainSchedules(ctx, now))...)
}

// partitionDay is the day of a partition's name; ok is false for the default one.
func partitionDay(table, name string) (from time.Time, ok bool) {
	from, err := time.Parse("20060102", strings.TrimPrefix(name, table+"_"))
	return from, err == nil
}

func (d *Dispatch) retainTable(ctx context.Context, table string, a ages, now time.Time) error {
	rows, _ := d.Pool.Query(ctx, `
		SELECT c.relname
		FROM pg_inherits i
		JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = $1::regclass
		ORDER BY c.relname`, table) // CollectRows reports the error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	var errs []error
	for _, name := range names {
		from, dated := partitionDay(table, name)
		over := from.Add(day)
		switch {
		case dated && !over.After(ago(now, days(table, a.longest))):
			errs = append(errs, d.dropPartition(ctx, table, name))
		case from.Before(ago(now, days(table, a.shortest))): // and the default one
			errs = append(errs, d.thin(ctx, table, name, a, now))
		}
	}
	return errors.Join(errs...)
}

// dropPartition takes a day out of the record. Where readers or writers hold the table it is left to the next time: a
// DETACH CONCURRENTLY, which would wait beside them, is not to be had beside a default partition.
func (d *Dispatch) dropPartition(ctx context.Context, table, name string) error {
	if table == "tick" {
		if err := d.cancelLive(ctx, name); err != nil {
			return err
		}
	}
	return d.changePartitions(ctx, "drop", func() error {
		err := pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
			if err := limitLocks(ctx, tx); err != nil {
				return err
			}
			// The table waits for its readers and writers. Whoever uses a partition alone is not waited for.
			if _, err := tx.Exec(ctx, `LOCK TABLE ONLY `+table+` IN ACCESS EXCLUSIVE MODE`); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `LOCK TABLE ONLY `+table+`_default, ONLY `+name+` IN ACCESS EXCLUSIVE MODE NOWAIT`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `DROP TABLE `+name)
			return err
		})
		if err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
		return nil
	})
}

// cancelLive cancels the ticks of a partition that never ended, so that no schedule waits for them for ever.
func (d *Dispatch) cancelLive(ctx context.Context, name string) error {
	for {
		var live []tenantTick
		err := pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = on`); err != nil { // it is read whole, once
				return err
			}
			rows, _ := tx.Query(ctx, `SELECT tenant_id, schedule_id, nominal_at, seq FROM `+name+` WHERE state IN (0, 1) LIMIT $1`, mostCleared) // CollectRows reports the error
			var err error
			live, err = pgx.CollectRows(rows, pgx.RowToStructByPos[tenantTick])
			return err
		})
		if err != nil {
			return fmt.Errorf("look for live ticks of %s: %w", name, err)
		}
		for _, one := range live {
			k := ident.TickKey{Schedule: one.ScheduleID, At: one.NominalAt.UTC(), Seq: one.Seq}
			if err := d.giveUp(ctx, tenants.ID(one.TenantID), k); err != nil {
				return fmt.Errorf("cancel a tick of %s: %w", name, err)
			}
		}
		if len(live) < mostCleared {
			return nil
		}
	}
}

type tenantTick struct {
	TenantID   int32
	ScheduleID int64
	NominalAt  time.Time
	Seq        int32
}

// giveUp cancels a tick that is past its retention, whoever has it.
func (d *Dispatch) giveUp(ctx context.Context, tenant tenants.ID, k ident.TickKey) error {
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		t, now, err := lockTick(ctx, tx, tenant, k)
		if err != nil || t == nil {
			return err
		}
		switch t.State {
		case Scheduled:
			return d.cancelWaiting(ctx, tx, tenant, k, now, Expired)
		case Running:
			if _, err := takeIdle(ctx, tx, tenant, t); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `DELETE FROM held WHERE tenant_id = $1 AND schedule_id = $2 AND nominal_at = $3 AND seq = $4`, tenant, k.Schedule, k.At, k.Seq)
			if err != nil {
				return err
			}
			_, err = d.end(ctx, tx, tenant, now, []ending{{TickKey: k, attempt: t.Attempt, outcome: cancelled}})
			return err
		}
		return nil
	})
}

// thin deletes from a partition what its tenants keep no longer, in batches. It goes from tenant to tenant by the key.
func (d *Dispatch) thin(ctx context.Context, table, name string, a ages, now time.Time) error {
	ended := ""
	if table == "tick" {
		ended = ` AND state > 1`
	}
	for tenant := int32(-1); ; {
		var next *int32
		if err := d.Pool.QueryRow(ctx, `SELECT min(tenant_id) FROM `+name+` WHERE tenant_id > $1`, tenant).Scan(&next); err != nil {
			return fmt.Errorf("look for tenants in %s: %w", name, err)
		}
		if next == nil {
			return nil
		}
		tenant = *next
		q, known := a.of[tenants.ID(tenant)]
		if !known {
			continue // made since, or erased
		}
		oldest := ago(now, days(table, q))
		if from, dated := partitionDay(table, name); dated && !from.Before(oldest) {
			continue
		}
		err := d.inBatches(ctx, `
			DELETE FROM `+name+`
			WHERE ctid = ANY (ARRAY (SELECT ctid FROM `+name+` WHERE tenant_id = $1 AND nominal_at < $2`+ended+` LIMIT $3))`, tenant, oldest)
		if err != nil {
			return fmt.Errorf("thin %s: %w", name, err)
		}
	}
}

// inBatches runs a statement that changes at most $n rows, n being one more than the arguments, until it changes fewer.
func (d *Dispatch) inBatches(ctx context.Context, sql string, args ...any) error {
	for {
		done, err := d.Pool.Exec(ctx, sql, append(args, mostCleared)...)
		if err != nil || done.RowsAffected() < mostCleared {
			return err
		}
	}
}

// retainTenant deletes a tenant's dead letters and versions of schedules that are past their retention. A version is
// kept as long as anything that may name it: its history, the record, or a dead letter.
func (d *Dispatch) retainTenant(ctx context.Context, tenant tenants.ID, q tenants.Quotas, now time.Time) error {
	err := d.inBatches(ctx, `
		DELETE FROM dead_letter
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (
			SELECT ctid FROM dead_letter WHERE tenant_id = $1 AND nominal_at < $2 AND failed_at < $2 LIMIT $3))`,
		tenant, ago(now, q.DeadLetterRetentionDays))
	if err != nil {
		return fmt.Errorf("delete dead letters: %w", err)
	}
	err = d.inBatches(ctx, `
		DELETE FROM audit
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM audit WHERE tenant_id = $1 AND at < $2 LIMIT $3))`,
		tenant, ago(now, q.AuditRetentionDays))
	if err != nil {
		return fmt.Errorf("delete the audit: %w", err)
	}
	err = d.inBatches(ctx, `
		DELETE FROM daily_use
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (SELECT ctid FROM daily_use WHERE tenant_id = $1 AND day < $2 LIMIT $3))`,
		tenant, dayOf(ago(now, q.AuditRetentionDays)))
	if err != nil {
		return fmt.Errorf("delete daily use: %w", err)
	}
	err = d.inBatches(ctx, `
		DELETE FROM revision
		WHERE tenant_id = $1 AND ctid = ANY (ARRAY (
			SELECT r.ctid
			FROM revision r
			WHERE r.tenant_id = $1 AND r.ended_at < $2
				AND NOT EXISTS (
					SELECT FROM dead_letter l
					WHERE l.tenant_id = $1 AND l.schedule_id = r.schedule_id AND l.version = r.version)
			LIMIT $3))`,
		tenant, ago(now, max(q.TickRetentionDays, q.DeadLetterRetentionDays, q.AuditRetentionDays)))
	if err != nil {
		return fmt.Errorf("delete revisions: %w", err)
	}
	return nil
}
