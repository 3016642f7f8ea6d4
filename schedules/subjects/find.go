package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// belongings are the schedules of a subject in all workflows, and the numbers of those that were deleted.
type belongings struct {
	live    []belonging
	deleted []int64
}

type belonging struct {
	ID       int64
	Shard    int16
	Workflow string
}

func (b belongings) ids() []int64 {
	ids := make([]int64, len(b.live))
	for i, s := range b.live {
		ids[i] = s.ID
	}
	return ids
}

// all returns the numbers of the schedules and of those that were deleted.
func (b belongings) all() []int64 { return append(b.ids(), b.deleted...) }

// find reads the schedules of a subject. Two indexes have those that name their subject. For those that have it as their key, find jumps
// from workflow to workflow of the tenant: an index of all schedules by key would cost each write of a schedule.
func find(ctx context.Context, db postgres.DB, tenant tenants.ID, subject string) (b belongings, err error) {
	var q pgx.Batch
	q.Queue(`
		WITH RECURSIVE w (workflow) AS (
			(SELECT workflow FROM schedule WHERE tenant_id = $1 ORDER BY workflow LIMIT 1)
			UNION ALL
			SELECT (SELECT s.workflow FROM schedule s WHERE s.tenant_id = $1 AND s.workflow > w.workflow ORDER BY s.workflow LIMIT 1)
			FROM w
			WHERE w.workflow IS NOT NULL
		)
		SELECT s.id, s.shard, s.workflow
		FROM w
		JOIN schedule s ON s.tenant_id = $1 AND s.workflow = w.workflow AND s.key = $2 AND s.subject IS NULL
		UNION ALL
		SELECT s.id, s.shard, s.workflow
		FROM schedule s
		WHERE s.tenant_id = $1 AND s.subject = $2`, tenant, subject)
	q.Queue(`
		WITH RECURSIVE w (workflow) AS (
			(SELECT workflow FROM revision WHERE tenant_id = $1 AND deleted ORDER BY workflow LIMIT 1)
			UNION ALL
			SELECT (SELECT r.workflow FROM revision r WHERE r.tenant_id = $1 AND r.workflow > w.workflow AND r.deleted ORDER BY r.workflow LIMIT 1)
			FROM w
			WHERE w.workflow IS NOT NULL
		)
		SELECT r.schedule_id
		FROM w
		JOIN revision r ON r.tenant_id = $1 AND r.workflow = w.workflow AND r.key = $2 AND r.deleted AND r.subject IS NULL
		UNION ALL
		SELECT r.schedule_id
		FROM revision r
		WHERE r.tenant_id = $1 AND r.subject = $2 AND r.deleted`, tenant, subject)
	q.Queue(`
		SELECT schedule_id FROM dead_letter WHERE tenant_id = $1 AND key = $2 AND subject IS NULL
		UNION
		SELECT schedule_id FROM dead_letter WHERE tenant_id = $1 AND subject = $2`, tenant, subject)
	results := db.SendBatch(ctx, &q)
	defer func() { err = errors.Join(err, results.Close()) }()
	rows, _ := results.Query() // CollectRows reports the error
	if b.live, err = pgx.CollectRows(rows, pgx.RowToStructByName[belonging]); err != nil {
		return b, fmt.Errorf("look for schedules of a subject: %w", err)
	}
	for range 2 { // of revisions, then of dead letters, which outlive them
		rows, _ := results.Query() // CollectRows reports the error
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return b, fmt.Errorf("look for deleted schedules of a subject: %w", err)
		}
		b.deleted = append(b.deleted, ids...)
	}
	live := b.ids()
	b.deleted = slices.DeleteFunc(b.deleted, func(id int64) bool { return slices.Contains(live, id) })
	slices.Sort(b.deleted)
	b.deleted = slices.Compact(b.deleted)
	return b, nil
}

// SchedulesOf returns the numbers of a subject's schedules in all workflows, and of those that were deleted, each in ascending order.
func (ss *Subjects) SchedulesOf(ctx context.Context, tenant tenants.ID, subject string) (live, deleted []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	found, err := find(ctx, ss.pool, tenant, subject)
	live = found.ids()
	slices.Sort(live)
	return live, found.deleted, err
}
