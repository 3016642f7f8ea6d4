package tenants

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
)

const (
	// recordReaders is the number of concurrent transactions that must fit into the lock table when each of them locks every
	// partition of the record with its indexes.
	recordReaders = 16

	// daysAround is the number of further days with partitions: today and a week ahead.
	daysAround = 8
)

// RecordDays compares the retention of the record, in days, with PostgreSQL's lock table. Each day has its own partitions, and each
// locked partition takes a place in the lock table.
type RecordDays struct {
	Longest int // the longest retention of all tenants
	Most    int // the most days that fit into the lock table
}

// ReadRecordDays returns the longest retention of all tenants, and the most days that fit into the lock table.
func ReadRecordDays(ctx context.Context, db postgres.DB) (d RecordDays, err error) {
	defaults := Defaults()
	err = db.QueryRow(ctx, `
		SELECT COALESCE(max(GREATEST((quotas ->> 'tick_retention_days')::int, (quotas ->> 'attempt_retention_days')::int, $1)), $1)
		FROM tenant
		WHERE erasing_at IS NULL`, max(defaults.TickRetentionDays, defaults.AttemptRetentionDays)).Scan(&d.Longest)
	if err != nil {
		return d, fmt.Errorf("read retention: %w", err)
	}
	d.Most, err = mostRecordDays(ctx, db)
	return d, err
}

// mostRecordDays returns how many days of the record fit into the lock table. Every partitioned table and index has one relation for
// each day.
func mostRecordDays(ctx context.Context, db postgres.DB) (days int, err error) {
	err = db.QueryRow(ctx, `
		SELECT current_setting('max_locks_per_transaction')::bigint
			* (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
			/ ($1 * GREATEST(count(*), 1)) - $2
		FROM pg_class
		WHERE relkind IN ('p', 'I') AND relnamespace = 'public'::regnamespace`, recordReaders, daysAround).Scan(&days)
	if err != nil {
		return 0, fmt.Errorf("read the size of the lock table: %w", err)
	}
	return max(days, 0), nil
}

// checkRecordDays returns a fault for a retention that is longer than the default and does not fit into the lock table.
func checkRecordDays(ctx context.Context, db postgres.DB, o Overrides) error {
	q, err := o.quotas()
	if err != nil {
		return err
	}
	most, err := mostRecordDays(ctx, db)
	if err != nil {
		return err
	}
	var errs []error
	check := func(member string, days, normal int) {
		if days > max(most, normal) {
			errs = append(errs, fault.Invalid("/quotas/"+member,
				"PostgreSQL's lock table has room for %d days: raise its max_locks_per_transaction first", max(most, normal)))
		}
	}
	defaults := Defaults()
	check("tick_retention_days", q.TickRetentionDays, defaults.TickRetentionDays)
	check("attempt_retention_days", q.AttemptRetentionDays, defaults.AttemptRetentionDays)
	return fault.Join(errs...)
}
