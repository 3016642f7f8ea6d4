package forecast

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

const (
	mostDeltas   = 50_000 // folded at once
	AllSchedules = 0      // in the place of a cohort's number: all schedules of the tenant
	AllSubjects  = -1     // likewise: its profiles of keys
	AllBytes     = -2     // likewise: the bytes of its specs and payloads
	countedFor   = 2 * time.Second
	countedRoom  = 50_000 // how many schedules others may make while this process uses an old count
)

// LookForDeltas finds a delta that FoldTallies has not added yet.
var LookForDeltas = `SELECT FROM tally_delta WHERE ` + postgres.Unfolded("tally_delta") + ` UNION ALL SELECT FROM inactive_delta WHERE ` + postgres.Unfolded("inactive_delta")

// FoldTallies adds the deltas that were appended since the last call to the tallies of cohorts and tenants. Processes that fold at the
// same time wait for one another.
func FoldTallies(ctx context.Context, db postgres.DB) error {
	for {
		var b pgx.Batch // one implicit transaction
		b.Queue(`SELECT pg_advisory_xact_lock($1, 0)`, postgres.TallyLocks)
		b.Queue(postgres.Fold("tally_delta", "tenant_id, cohort_id, n")+`
			INSERT INTO tally AS t (tenant_id, cohort_id, n)
			SELECT tenant_id, cohort_id, sum(n)
			FROM taken
			GROUP BY tenant_id, cohort_id
			HAVING sum(n) <> 0
			ORDER BY tenant_id, cohort_id
			ON CONFLICT (tenant_id, cohort_id) DO UPDATE SET n = t.n + excluded.n`, mostDeltas)
		b.Queue(postgres.Fold("inactive_delta", "tenant_id, workflow, state, n")+`
			INSERT INTO inactive AS i (tenant_id, workflow, state, n)
			SELECT tenant_id, workflow, state, sum(n)
			FROM taken
			GROUP BY tenant_id, workflow, state
			HAVING sum(n) <> 0
			ORDER BY tenant_id, workflow, state
			ON CONFLICT (tenant_id, workflow, state) DO UPDATE SET n = i.n + excluded.n`, mostDeltas)
		b.Queue(`
			SELECT GREATEST(
				(SELECT count(*) FROM (SELECT FROM tally_delta WHERE `+postgres.Unfolded("tally_delta")+` LIMIT $1) d),
				(SELECT count(*) FROM (SELECT FROM inactive_delta WHERE `+postgres.Unfolded("inactive_delta")+` LIMIT $1) d))`, mostDeltas)
		results := db.SendBatch(ctx, &b)
		_, lockErr := results.Exec()
		_, foldErr := results.Exec()
		_, idleErr := results.Exec()
		var left int
		err := results.QueryRow().Scan(&left)
		if closeErr := results.Close(); closeErr != nil || lockErr != nil || foldErr != nil || idleErr != nil || err != nil {
			return fmt.Errorf("fold counts: %w", firstOf(lockErr, foldErr, idleErr, err, closeErr))
		}
		if left < mostDeltas {
			return nil
		}
	}
}

// LockTallies prevents folding until the transaction ends.
func LockTallies(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, 0)`, postgres.TallyLocks)
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// recentCounts are the last counts of tenants that this process has read, with what it has added since. They are safe for
// concurrent use.
type recentCounts struct {
	mu sync.Mutex
	of map[tenants.ID]counted
}

type counted struct {
	n  int
	at time.Time
}

// last returns the count of a tenant, where one is known that is younger than age.
func (c *recentCounts) last(tenant tenants.ID, age time.Duration) (count int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.of[tenant]; time.Since(last.at) < age {
		return last.n, true
	}
	return 0, false
}

// take adds n to the count of a tenant and returns it, if a recent one is known and the sum is at most most.
func (c *recentCounts) take(tenant tenants.ID, n, most int) (count int, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.of[tenant]
	if time.Since(known.at) >= countedFor || known.n+n > most {
		return 0, false
	}
	known.n += n
	c.of[tenant] = known
	return known.n, true
}

// keep notes a count that was read.
func (c *recentCounts) keep(tenant tenants.ID, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) > mostCounts {
		c.of = map[tenants.ID]counted{}
	}
	c.of[tenant] = counted{n, time.Now()}
}

// Room returns how many of n new schedules the quota has room for. Far from the quota it uses a count that is up to 2 s old. Within
// 50,000 of the quota, transactions that make schedules of the tenant wait for one another, and the count is exact. Call Room before the
// transaction locks or writes any other row.
func (f *Forecasts) Room(ctx context.Context, tx pgx.Tx, tenant tenants.ID, n int, q tenants.Quotas) (room, stored int, err error) {
	if stored, fits := f.counts.take(tenant, n, q.Schedules-countedRoom); fits {
		return n, stored, nil
	}
	if stored, err = countStored(ctx, tx, tenant); err != nil {
		return 0, 0, err
	}
	if stored+n+countedRoom <= q.Schedules {
		f.counts.keep(tenant, stored+n)
		return n, stored, nil
	}
	// The lock is a separate statement, because a statement that waits for the lock would count with a snapshot from before the wait.
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, postgres.TallyLocks, int32(tenant)); err != nil {
		return 0, 0, fmt.Errorf("wait to count schedules: %w", err)
	}
	if stored, err = countStored(ctx, tx, tenant); err != nil {
		return 0, 0, err
	}
	room = max(0, min(n, q.Schedules-stored))
	f.counts.keep(tenant, stored+room)
	return room, stored, nil
}

// Soft warns of quotas of which four fifths are used. It reads nothing from the database: it uses recent counts of schedules and bytes,
// and the projected ticks if there is a forecast.
func (f *Forecasts) Soft(tenant tenants.ID, w *Cached, q tenants.Quotas) (all []calendar.Warning) {
	warn := func(quota string, used, limit int) {
		if used > 0 && tenants.Soft(used, limit) {
			all = append(all, calendar.Warning{Code: "quota_soft", Detail: fmt.Sprintf("%d of the %d that %s allows are used", used, limit, quota)})
		}
	}
	stored, _ := f.counts.last(tenant, countedFor)
	bytes, _ := f.bytes.last(tenant, countedFor)
	warn("schedules", stored, q.Schedules)
	warn("stored_bytes", bytes, q.StoredBytes)
	warn("projected_ticks_per_day", w.projected(), q.ProjectedTicksPerDay)
	return all
}

const mostCounts = 100_000 // tenants

func countStored(ctx context.Context, db postgres.DB, tenant tenants.ID) (n int, err error) {
	return Count(ctx, db, tenant, AllSchedules)
}

// Count returns the count of a cohort, or of AllSchedules, AllSubjects or
// AllBytes. It includes the deltas that are not yet folded into the tally.
func Count(ctx context.Context, db postgres.DB, tenant tenants.ID, cohort int64) (n int, err error) {
	err = db.QueryRow(ctx, `
		SELECT (COALESCE((SELECT n FROM tally WHERE tenant_id = $1 AND cohort_id = $2), 0)
			+ COALESCE((SELECT sum(n) FROM tally_delta WHERE tenant_id = $1 AND cohort_id = $2 AND `+postgres.Unfolded("tally_delta")+`), 0))::bigint`, tenant, cohort).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read a tally: %w", err)
	}
	return n, nil
}

// Stored is how many schedules a tenant has, of whatever status.
func (f *Forecasts) Stored(ctx context.Context, tenant tenants.ID) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	return countStored(ctx, f.pool, tenant)
}

// Subjects returns how many profiles of subjects a tenant has.
func (f *Forecasts) Subjects(ctx context.Context, tenant tenants.ID) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	return Count(ctx, f.pool, tenant, AllSubjects)
}

// ShardsFor returns how many shards a tenant's new schedules use. A tenant with more schedules uses more shards. So the few schedules
// that a small tenant has due at once make one chunk, and no shard holds a large part of a large tenant.
func (f *Forecasts) ShardsFor(ctx context.Context, tenant tenants.ID) (int16, error) {
	count, recent := f.counts.last(tenant, shardsFor)
	if least, ok := f.shards.Load(tenant); ok && recent {
		return max(least.(int16), cohorts.ShardsFor(count)), nil
	}
	stored, err := countStored(ctx, f.pool, tenant)
	if err != nil {
		return 0, err
	}
	var least int16
	if err := f.pool.QueryRow(ctx, `SELECT shards FROM tenant WHERE id = $1`, tenant).Scan(&least); err != nil {
		return 0, fmt.Errorf("read shards: %w", err)
	}
	f.counts.keep(tenant, stored)
	f.shards.Store(tenant, least)
	return max(least, cohorts.ShardsFor(stored)), nil
}

// shardsFor is how long ShardsFor uses a count that it has read. This process adds the schedules that it makes to that count.
const shardsFor = time.Minute
