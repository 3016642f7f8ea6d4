package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// keyed is what there is of a key over all workflows: its schedules, and the numbers of those that were deleted.
type keyed struct {
	live    []keyedSchedule
	deleted []int64
}

type keyedSchedule struct {
	ID       int64
	Shard    int16
	Workflow string
}

func (k keyed) ids() []int64 {
	ids := make([]int64, len(k.live))
	for i, s := range k.live {
		ids[i] = s.ID
	}
	return ids
}

// all are the numbers of the schedules and of those that were deleted.
func (k keyed) all() []int64 { return append(k.ids(), k.deleted...) }

// findKey looks a key up in each of the tenant's workflows that has schedules, or had some that were deleted: it jumps from
// workflow to workflow, as an index of all schedules by key would cost whoever writes one.
func findKey(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key string) (k keyed, err error) {
	var b pgx.Batch
	b.Queue(`
		WITH RECURSIVE w (workflow) AS (
			(SELECT workflow FROM schedule WHERE tenant_id = $1 ORDER BY workflow LIMIT 1)
			UNION ALL
			SELECT (SELECT s.workflow FROM schedule s WHERE s.tenant_id = $1 AND s.workflow > w.workflow ORDER BY s.workflow LIMIT 1)
			FROM w
			WHERE w.workflow IS NOT NULL
		)
		SELECT s.id, s.shard, s.workflow
		FROM w
		JOIN schedule s ON s.tenant_id = $1 AND s.workflow = w.workflow AND s.key = $2`, tenant, key)
	b.Queue(`
		WITH RECURSIVE w (workflow) AS (
			(SELECT workflow FROM revision WHERE tenant_id = $1 AND deleted ORDER BY workflow LIMIT 1)
			UNION ALL
			SELECT (SELECT r.workflow FROM revision r WHERE r.tenant_id = $1 AND r.workflow > w.workflow AND r.deleted ORDER BY r.workflow LIMIT 1)
			FROM w
			WHERE w.workflow IS NOT NULL
		)
		SELECT r.schedule_id
		FROM w
		JOIN revision r ON r.tenant_id = $1 AND r.workflow = w.workflow AND r.key = $2 AND r.deleted`, tenant, key)
	b.Queue(`SELECT DISTINCT schedule_id FROM dead_letter WHERE tenant_id = $1 AND key = $2`, tenant, key)
	results := tx.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	rows, _ := results.Query() // CollectRows reports the error
	if k.live, err = pgx.CollectRows(rows, pgx.RowToStructByName[keyedSchedule]); err != nil {
		return k, fmt.Errorf("look for schedules of a key: %w", err)
	}
	for range 2 { // of revisions, then of dead letters, which outlive them
		rows, _ := results.Query() // CollectRows reports the error
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return k, fmt.Errorf("look for deleted schedules of a key: %w", err)
		}
		k.deleted = append(k.deleted, ids...)
	}
	live := k.ids()
	k.deleted = slices.DeleteFunc(k.deleted, func(id int64) bool { return slices.Contains(live, id) })
	slices.Sort(k.deleted)
	k.deleted = slices.Compact(k.deleted)
	return k, nil
}
