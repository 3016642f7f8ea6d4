package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/tenants"
)

// examineLocks checks that PostgreSQL's lock table has room for the partitions of the days that tenants keep.
func examineLocks(ctx context.Context, pool *pgxpool.Pool) finding {
	days, err := tenants.ReadRecordDays(ctx, pool)
	if err != nil {
		return fine("locks", "%v", err).fail("bring the schema up to date first: carillon migrate")
	}
	f := fine("locks", "the record is kept for up to %d days, and the lock table has room for %d", days.Longest, days.Most)
	if days.Longest > days.Most {
		return f.warn("raise max_locks_per_transaction in PostgreSQL and restart it, or lower the retention quotas: statements fail with \"out of shared memory\" otherwise")
	}
	return f
}
