package schedules

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/jackc/pgx/v5"
)

// scheduleName is a schedule of a tenant.
type scheduleName struct{ workflow, key string }

// namedRows reads the schedules of tenant $1 that workflows $2 and keys $3 name, as s. Each is looked up by the index, whatever the planner
// knows of the table: the planner does not flatten a subquery with an OFFSET.
const namedRows = `
		unnest($2::text[], $3::text[]) AS n (workflow, key)
		CROSS JOIN LATERAL (SELECT * FROM schedule WHERE tenant_id = $1 AND workflow = n.workflow AND key = n.key OFFSET 0) s`

// namedIDs is an array of the ids of these schedules.
const namedIDs = `ARRAY (SELECT s.id FROM ` + namedRows + `)`

// lockByID locks schedules of tenant $1 in the order of their ids. For a new table without statistics the planner prefers one read of all
// the tenant's schedules to many lookups, so each row has a lookup of its own.
func lockByID(ids string) string {
	return `
		SELECT l.id
		FROM (SELECT id FROM (` + ids + `) s ORDER BY id) n
		CROSS JOIN LATERAL (SELECT id FROM schedule WHERE tenant_id = $1 AND id = n.id FOR UPDATE) l`
}

// lockNamed locks the schedules of names, and before them their shards, and then reads them and the clock. The row of a name that has no
// schedule is nil, and the shard in which it would be made, of newborn, is locked.
func (b *batch) lockNamed(ctx context.Context, names []scheduleName, newborn []int16) ([]*row, error) {
	workflows, keys := make([]string, len(names)), make([]string, len(names))
	for i, name := range names {
		workflows[i], keys[i] = name.workflow, name.key
	}
	var q pgx.Batch
	q.Queue(postgres.GenericPlans) // planning took a third of the time that PostgreSQL spends on a put of one schedule
	q.Queue(`
		SELECT shard, pg_advisory_xact_lock_shared($5, shard)::text
		FROM (
			SELECT DISTINCT COALESCE((SELECT shard FROM schedule WHERE tenant_id = $1 AND workflow = n.workflow AND key = n.key), n.newborn) AS shard
			FROM unnest($2::text[], $3::text[], $4::smallint[]) AS n (workflow, key, newborn)
			ORDER BY shard
		) s`, b.tenant, workflows, keys, newborn, postgres.ShardLocks)
	// In a statement of its own: one that waited for the lock would show the others' rows as they were before it.
	q.Queue(lockByID(`SELECT s.id FROM `+namedRows), b.tenant, workflows, keys)
	q.Queue(`SELECT `+rowColumns+` FROM `+namedRows+lookups, b.tenant, workflows, keys)
	q.Queue(`SELECT ` + postgres.Now)
	results := b.tx.SendBatch(ctx, &q)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("choose generic plans: %w", err)
	}
	shards := map[int16]bool{}
	var shard int16
	var nothing *string
	rows, _ := results.Query() // ForEachRow reports the error
	if _, err := pgx.ForEachRow(rows, []any{&shard, &nothing}, func() error { shards[shard] = true; return nil }); err != nil {
		return nil, fmt.Errorf("lock shards: %w", err)
	}
	rows, _ = results.Query() // CollectRows reports the error
	locked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("lock schedules: %w", err)
	}
	found, err := b.collect(results)
	if err != nil {
		return nil, err
	}
	byName := make(map[scheduleName]*row, len(found))
	for _, r := range found {
		if !shards[r.Shard] || !slices.Contains(locked, r.ID) { // made anew since we waited for one that was deleted
			return nil, errRaced
		}
		byName[scheduleName{r.Workflow, r.Key}] = r
	}
	all := make([]*row, len(names))
	for i, name := range names {
		if all[i] = byName[name]; all[i] == nil && !shards[newborn[i]] { // deleted since we looked for its shard
			return nil, errRaced
		}
	}
	return all, results.Close()
}

// lockRows locks and reads schedules whose shards are locked, and then the clock. Those that are gone are left out.
func (b *batch) lockRows(ctx context.Context, ids []int64) ([]*row, error) {
	slices.Sort(ids)
	var q pgx.Batch
	q.Queue(lockByID(`SELECT unnest($2::bigint[]) AS id`), b.tenant, ids)
	q.Queue(`
		SELECT `+rowColumns+`
		FROM unnest($2::bigint[]) AS n (id)
		CROSS JOIN LATERAL (SELECT * FROM schedule WHERE tenant_id = $1 AND id = n.id OFFSET 0) s`+lookups, b.tenant, ids)
	q.Queue(`SELECT ` + postgres.Now)
	results := b.tx.SendBatch(ctx, &q)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("lock schedules: %w", err)
	}
	rows, err := b.collect(results)
	if err != nil {
		return nil, err
	}
	return rows, results.Close()
}

// collect reads the rows of a query for rowColumns, and then the clock, which sets the time of the batch.
func (b *batch) collect(results pgx.BatchResults) ([]*row, error) {
	found, _ := results.Query() // CollectRows reports the error
	rows, err := pgx.CollectRows(found, scanRow)
	if err != nil {
		return nil, fmt.Errorf("read schedules: %w", err)
	}
	if err := results.QueryRow().Scan(&b.now); err != nil {
		return nil, fmt.Errorf("read clock: %w", err)
	}
	b.now = b.now.UTC()
	for _, r := range rows {
		r.wake(b.now)
	}
	return rows, nil
}

// prepare locks what else belongs to rows that are locked, and reads their timings. delayed holds the ids of those that get fixed_delay.
func (b *batch) prepare(ctx context.Context, rows []*row, delayed map[int64]bool) error {
	if err := b.lockDelays(ctx, rows, delayed); err != nil {
		return err
	}
	return fetchTimings(ctx, b.tx, b.schedules.Timings, b.tenant, rows)
}
