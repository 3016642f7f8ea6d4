package finish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillonhq/carillon/internal/loop"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// A tick of a workflow with max_running has a row in table slot from the time when it is pushed or leased until that attempt ends. A
// transaction that adds a row holds the lock of the workflow's row. Without a free slot, ticks for workers stay in ready. Ticks to push
// wait in table queued, and the transaction that frees a slot grants it to the first of them. Workflows without max_running have no rows
// in these tables.

// limits remembers which tenants have workflows with max_running, so that an end of another tenant's tick looks for no slots. It is at
// most about a second old; FreeLostSlots frees the slots that it misses.
type limits struct {
	tenants atomic.Pointer[map[tenants.ID]bool] // nil: not known yet
}

func newLimits() *limits { return &limits{} }

// any reports whether a tenant may have slots.
func (l *limits) any(tenant tenants.ID) bool {
	known := l.tenants.Load()
	return known == nil || (*known)[tenant]
}

// LockLimits locks those of the workflows that have a max_running, and returns how many more of their ticks may run. Other workflows
// are not in the result.
func (f *Finisher) LockLimits(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflows []string) (free map[string]int, err error) {
	rows, err := tx.Query(ctx, `
		SELECT w.name, w.max_running
		FROM (SELECT name FROM unnest($2::text[]) AS n (name) ORDER BY name COLLATE "C") n
		CROSS JOIN LATERAL (
			SELECT name, max_running
			FROM workflow
			WHERE tenant_id = $1 AND name = n.name AND max_running IS NOT NULL
			FOR UPDATE -- one row after the other, in this order
		) w`, tenant, workflows)
	if err != nil {
		return nil, fmt.Errorf("lock limited workflows: %w", err)
	}
	free = map[string]int{}
	var name string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { free[name] = n; return nil }); err != nil {
		return nil, fmt.Errorf("lock limited workflows: %w", err)
	}
	if len(free) == 0 {
		return free, nil
	}
	// In a statement of its own: it sees what was committed while this one waited for the lock.
	running, err := f.floors.countRunning(ctx, tx, tenant, slices.Sorted(maps.Keys(free)))
	if err != nil {
		return nil, fmt.Errorf("count running ticks: %w", err)
	}
	for name, n := range running {
		free[name] = max(0, free[name]-n)
	}
	return free, nil
}

// InsertSlots writes a slot for each key, of the workflow at the same index. The caller holds the locks of LockLimits.
func InsertSlots(ctx context.Context, tx pgx.Tx, tenant tenants.ID, keys record.Keys, workflows []string) error {
	if len(workflows) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO slot (tenant_id, schedule_id, nominal_at, seq, attempt, workflow)
		SELECT $1, id, at, seq, attempt, workflow
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $6::text[]) AS n (id, at, seq, attempt, workflow)
		ON CONFLICT (schedule_id, nominal_at, seq) DO UPDATE SET attempt = excluded.attempt`,
		tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, workflows)
	if err != nil {
		return fmt.Errorf("take slots: %w", err)
	}
	return nil
}

// StandingSlots returns which of the ticks have a slot, and which of the workflows have ticks that wait for one. The caller holds the
// workflows' locks.
func (f *Finisher) StandingSlots(ctx context.Context, tx pgx.Tx, tenant tenants.ID, keys record.Keys, workflows []string) (has map[ident.TickKey]bool, queued map[string]bool, err error) {
	has, queued = map[ident.TickKey]bool{}, map[string]bool{}
	var b pgx.Batch
	b.Queue(`
		SELECT s.schedule_id, s.nominal_at, s.seq
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		JOIN slot s ON `+record.InKeys("s"), tenant, keys.IDs, keys.At, keys.Seqs).Query(func(rows pgx.Rows) error {
		var k ident.TickKey
		_, err := pgx.ForEachRow(rows, []any{&k.Schedule, &k.At, &k.Seq}, func() error {
			k.At = k.At.UTC()
			has[k] = true
			return nil
		})
		return err
	})
	f.floors.queueWaiting(tx, &b, tenant, workflows, queued)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("look for slots and queued ticks: %w", err)
	}
	return has, queued, nil
}

// DropSlots deletes the slots of ticks, and returns their workflows, each once.
func DropSlots(ctx context.Context, tx pgx.Tx, tenant tenants.ID, keys record.Keys) (workflows []string, err error) {
	if len(keys.IDs) == 0 {
		return nil, nil
	}
	rows, _ := tx.Query(ctx, `
		DELETE FROM slot s
		USING unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		WHERE `+record.InKeys("s")+`
		RETURNING s.workflow`, tenant, keys.IDs, keys.At, keys.Seqs) // CollectRows reports the error
	workflows, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("free slots: %w", err)
	}
	slices.Sort(workflows)
	return slices.Compact(workflows), nil
}

// freeSlots deletes the slots of ended attempts, and grants them to waiting ticks.
func (f *Finisher) freeSlots(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, ended map[ident.TickKey]record.State) error {
	if len(ended) == 0 || !f.limits.any(tenant) {
		return nil
	}
	var keys record.Keys
	for k := range ended {
		keys.Add(k, 0)
	}
	workflows, err := DropSlots(ctx, tx, tenant, keys)
	if err != nil {
		return err
	}
	for _, name := range workflows {
		if _, err := f.grant(ctx, tx, tenant, name, now); err != nil {
			return err
		}
	}
	return nil
}

const mostGranted = 1000 // ticks at once, of a workflow whose limit was removed

// grant gives the free slots of a workflow to waiting ticks. It holds the ticks to push as due now, and wakes long polls once the
// transaction is committed. If the limit of the workflow was removed, it lets up to mostGranted ticks go. more reports whether others may
// wait.
func (f *Finisher) grant(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflow string, now time.Time) (more bool, err error) {
	free, err := f.LockLimits(ctx, tx, tenant, []string{workflow})
	if err != nil {
		return false, err
	}
	n, limited := free[workflow]
	if !limited {
		n = mostGranted
	}
	if n == 0 {
		return false, nil
	}
	from := f.floors.queueOf(limitedWorkflow{tenant, workflow}).from
	var shards []int16
	var b pgx.Batch
	b.Queue(`
		WITH first AS MATERIALIZED ( -- read once: a join would read it again and find others
			SELECT q.priority, q.id
			FROM unnest($6::smallint[], $7::bigint[]) AS p (priority, from_id)
			CROSS JOIN LATERAL (
				SELECT priority, id FROM queued WHERE tenant_id = $1 AND workflow = $2 AND priority = p.priority AND id >= p.from_id ORDER BY id LIMIT $3
			) q
			ORDER BY q.priority, q.id
			LIMIT $3
		), next AS (
			DELETE FROM queued w
			USING first n
			WHERE w.tenant_id = $1 AND w.workflow = $2 AND w.priority = n.priority AND w.id = n.id
				-- Without these bounds, a planner that expects few waiting ticks would read all of them.
				AND (w.priority, w.id) >= ((SELECT priority FROM first ORDER BY priority, id LIMIT 1), (SELECT id FROM first ORDER BY priority, id LIMIT 1))
				AND (w.priority, w.id) <= ((SELECT priority FROM first ORDER BY priority DESC, id DESC LIMIT 1), (SELECT id FROM first ORDER BY priority DESC, id DESC LIMIT 1))
			RETURNING w.schedule_id, w.nominal_at, w.seq, w.attempt, w.shard
		), granted AS (
			INSERT INTO slot (tenant_id, schedule_id, nominal_at, seq, attempt, workflow)
			SELECT $1, schedule_id, nominal_at, seq, attempt, $2 FROM next WHERE $5::boolean
			ON CONFLICT (schedule_id, nominal_at, seq) DO NOTHING
		)
		INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at)
		SELECT $1, schedule_id, nominal_at, seq, attempt, shard, 'slot', `+cohorts.NotPast("$4::timestamptz")+` FROM next
		ON CONFLICT (tenant_id, schedule_id, nominal_at, seq) DO UPDATE SET attempt = excluded.attempt, why = excluded.why, due_at = excluded.due_at, waits_for = NULL
		RETURNING shard`, tenant, workflow, n, now, limited, allPriorities, from[:]).Query(func(rows pgx.Rows) (err error) {
		shards, err = pgx.CollectRows(rows, pgx.RowTo[int16])
		return err
	})
	if limited { // otherwise the transaction has no lock
		f.floors.queueWaiting(tx, &b, tenant, []string{workflow}, map[string]bool{})
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return false, fmt.Errorf("grant slots: %w", err)
	}
	more = len(shards) == mostGranted
	slices.Sort(shards)
	for _, shard := range slices.Compact(shards) {
		if err := cohorts.WakeSweep(ctx, tx, shard); err != nil {
			return false, err
		}
	}
	t := cluster.TopicOf(tenant, workflow)
	return more, postgres.Notify(ctx, tx, cluster.ReadyChannel, t.Payload(n))
}

// watchLimits reads each second which tenants have slots, or workflows with max_running, until ctx ends. It finds one tenant after the
// other in an index, and does not read all rows. Tenants with slots are read less often if that takes long, as an old snapshot keeps the
// entries of slots that are gone.
func (f *Finisher) watchLimits(ctx context.Context) {
	var running []tenants.ID
	var pause cluster.Seldom
	loop.Every(ctx, f.log, time.Second, "look for limited workflows", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		found, err := f.tenantsOf(ctx, "workflow WHERE max_running IS NOT NULL AND")
		if err != nil {
			return err
		}
		if began := time.Now(); pause.Due(began) {
			if running, err = f.tenantsOf(ctx, "slot WHERE"); err != nil {
				return err
			}
			pause.Found(time.Since(began), len(running), time.Now())
		}
		known := map[tenants.ID]bool{}
		for _, id := range append(found, running...) {
			known[id] = true
		}
		f.limits.tenants.Store(&known)
		return nil
	})
}

// tenantsOf returns the tenants that have rows, one after the other by an index. rows is a table with the beginning of a condition.
func (f *Finisher) tenantsOf(ctx context.Context, rows string) ([]tenants.ID, error) {
	found, _ := f.pool.Query(ctx, `
		WITH RECURSIVE one (tenant_id) AS (
			(SELECT tenant_id FROM `+rows+` tenant_id > 0 ORDER BY tenant_id LIMIT 1)
			UNION ALL
			SELECT n.tenant_id
			FROM one o
			CROSS JOIN LATERAL (SELECT tenant_id FROM `+rows+` tenant_id > o.tenant_id ORDER BY tenant_id LIMIT 1) n
		)
		SELECT tenant_id FROM one`) // CollectRows reports the error
	return pgx.CollectRows(found, pgx.RowTo[tenants.ID])
}
