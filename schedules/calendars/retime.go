package calendars

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// When calendars or zones change, the cohorts that use them are marked in batches. A mark is the moment from which the new calendars or
// zones count (retime_at), and it makes the cohort due at once. The sweep does the rest: it serves the times before that moment as
// promised, and then continues with the new timing. A batch shares the lock of the shard, so that no sweep runs while the moment is read,
// and no sweep waits for long.

// markCalendars marks at most limit cohorts of a tenant and shard whose calendars have changed, and returns how many. The caller's
// transaction holds the shared lock of the shard.
func markCalendars(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shard int16, limit int) (int, error) {
	done, err := tx.Exec(ctx, `
		UPDATE cohort c
		SET retime_at = date_trunc('milliseconds', n.at), due_at = CASE WHEN c.due_at = 'infinity' THEN c.due_at ELSE LEAST(c.due_at, `+postgres.Now+`) END
		FROM (
			SELECT id, (SELECT `+postgres.Now+`) AS at
			FROM cohort o
			WHERE tenant_id = $1 AND shard = $2 AND calendars IS NOT NULL AND `+outdated+`
			LIMIT $3
		) n
		WHERE c.shard = $2 AND c.id = n.id AND c.tenant_id = $1`, tenant, shard, limit)
	if err != nil {
		return 0, fmt.Errorf("mark cohorts: %w", err)
	}
	return int(done.RowsAffected()), nil
}

// outdated is an SQL condition on a cohort o: it is not empty, it is timed by an
// edition of a calendar that is not the present one, and it is not marked yet.
const outdated = `retime_at IS NULL AND empty_at IS NULL AND EXISTS (
		SELECT FROM calendar e
		WHERE e.tenant_id = $1 AND e.name = ANY(o.calendars) AND e.until IS NULL AND e.since > o.revision)`

// lockShared takes the shared lock of a shard until the transaction ends.
func lockShared(ctx context.Context, tx pgx.Tx, shard int16) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock_shared($1, $2)`, postgres.ShardLocks, int32(shard)); err != nil {
		return fmt.Errorf("lock shard: %w", err)
	}
	return nil
}

// stale is a tenant whose calendars have changed since all of its cohorts were marked.
type stale struct {
	TenantID tenants.ID
	Revision int64
}

// markFew marks cohorts of a tenant after an edit, shard by shard. It marks at most mostMarked; MarkStale marks the rest.
func (cs *Calendars) markFew(ctx context.Context, tenant tenants.ID) error {
	var one stale
	err := cs.pool.QueryRow(ctx, `SELECT tenant_id, revision FROM calendar_revision WHERE tenant_id = $1`, tenant).Scan(&one.TenantID, &one.Revision)
	if err != nil {
		return fmt.Errorf("read revision: %w", err)
	}
	_, err = markShards(ctx, cs.pool, one, mostMarked)
	return err
}

// LookForStale finds a tenant whose cohorts are not all marked after an edit of its calendars.
const LookForStale = `SELECT FROM calendar_revision WHERE marked < revision`

// MarkStale marks the cohorts of tenants whose calendars were edited, at most a few thousand in a call. more reports that some are left.
// An edit that concerns few cohorts has marked them itself.
func MarkStale(ctx context.Context, db TxBeginner) (more bool, err error) {
	rows, _ := db.Query(ctx, `SELECT tenant_id, revision FROM calendar_revision WHERE marked < revision LIMIT 100`) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stale])
	if err != nil {
		return false, fmt.Errorf("look for edited calendars: %w", err)
	}
	left := 5 * mostMarked
	for _, one := range found {
		told, err := markShards(ctx, db, one, left)
		if err != nil {
			return false, err
		}
		if left -= told; left <= 0 {
			return true, nil
		}
	}
	return len(found) == 100, nil
}

// TxBeginner is a pool.
type TxBeginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// markShards marks at most limit cohorts of a tenant, and records when all are marked.
func markShards(ctx context.Context, db TxBeginner, one stale, limit int) (told int, err error) {
	rows, _ := db.Query(ctx, `
		SELECT DISTINCT shard
		FROM cohort o
		WHERE tenant_id = $1 AND calendars IS NOT NULL AND `+outdated+`
		ORDER BY shard`, one.TenantID) // CollectRows reports the error
	shards, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		return 0, fmt.Errorf("look for cohorts: %w", err)
	}
	for _, shard := range shards {
		for {
			batch := min(mostMarked, limit-told)
			if batch <= 0 {
				return told, nil
			}
			n := 0
			err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				if err := lockShared(ctx, tx, shard); err != nil {
					return err
				}
				if n, err = markCalendars(ctx, tx, one.TenantID, shard, batch); err != nil || n == 0 {
					return err
				}
				return cohorts.WakeSweep(ctx, tx, shard)
			})
			if err != nil {
				return told, err
			}
			if told += n; n < batch {
				break
			}
		}
	}
	var done bool
	err = db.QueryRow(ctx, `
		UPDATE calendar_revision
		SET marked = GREATEST(marked, $2)
		WHERE tenant_id = $1
		RETURNING true`, one.TenantID, one.Revision).Scan(&done)
	if err != nil {
		return told, fmt.Errorf("note what was told: %w", err)
	}
	return told, nil
}
