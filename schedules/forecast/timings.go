package forecast

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// timed returns the groups of a tenant's active schedules, apart by workflow, and the timing of each, which is nil if it cannot be
// computed. It reads those of one workflow, or of all.
func (f *Forecasts) timed(ctx context.Context, tenant tenants.ID, workflow string) (groups []group, timings []*calendar.Timing, sampled bool, err error) {
	if groups, sampled, err = f.groups(ctx, tenant, workflow, true); err != nil {
		return nil, nil, false, err
	}
	timings, err = f.timingsOf(ctx, groups)
	return groups, timings, sampled, err
}

func (f *Forecasts) timingsOf(ctx context.Context, groups []group) ([]*calendar.Timing, error) {
	names := make([]cohorts.CohortTiming, len(groups))
	for i, l := range groups {
		names[i] = l.CohortTiming
	}
	timings, _, err := f.timings.Of(ctx, f.pool, names)
	return timings, err
}

// groupKey says which cohorts are one group.
type groupKey struct {
	hash     [16]byte
	workflow string
}

// groups returns the timings of a tenant's active schedules, of one workflow or of all; apart keeps those of different workflows apart. If
// there are too many, some of those with fewest members stand for several each, and sampled is true.
func (f *Forecasts) groups(ctx context.Context, tenant tenants.ID, workflow string, apart bool) (groups []group, sampled bool, err error) {
	byHash := map[groupKey]int{}
	var top, all, sum float64 // members: of the largest, of all, and of those that stand for the others
	sql, args := groupsQuery(tenant, workflow)
	rows, err := f.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("read cohorts: %w", err)
	}
	defer rows.Close()
	var others []group
	count := 0
	for rows.Next() {
		l := group{CohortTiming: cohorts.CohortTiming{Tenant: tenant}}
		var large, due bool
		if err := rows.Scan(&l.Shard, &l.ID, &l.Hash, &l.workflow, &l.n, &large, &due, &all, &count); err != nil {
			return nil, false, fmt.Errorf("read cohorts: %w", err)
		}
		if large {
			top += l.n
		} else {
			sum += l.n
		}
		switch at, known := byHash[l.key(apart)]; {
		case !due:
		case !large:
			others = append(others, l)
		case known:
			groups[at].n += l.n
		default:
			byHash[l.key(apart)] = len(groups)
			groups = append(groups, l)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("read cohorts: %w", err)
	}
	for _, l := range others {
		l.n *= (all - top) / sum
		if at, known := byHash[l.key(apart)]; known {
			groups[at].n += l.n
			continue
		}
		byHash[l.key(apart)] = len(groups)
		groups = append(groups, l)
	}
	return groups, count > mostGroups, nil
}

// key returns the key that the cohorts of the group have in common.
func (g group) key(apart bool) groupKey {
	if apart {
		return groupKey{[16]byte(g.Hash), g.workflow}
	}
	return groupKey{hash: [16]byte(g.Hash)}
}

// groupsQuery returns a query that reads the tallies of a tenant's cohorts: the $2 with most members, and a sample of the others. The
// sample has about $3 cohorts, each of which stands for several. Each row also has the numbers of all members and of all cohorts.
func groupsQuery(tenant tenants.ID, workflow string) (sql string, args []any) {
	args, of := []any{tenant, mostGroups, sampledGroups}, ""
	if workflow != "" {
		args, of = append(args, workflow), `
			AND EXISTS (SELECT FROM cohort c WHERE c.shard = t.shard AND c.id = t.cohort_id AND c.tenant_id = $1 AND c.workflow = $4)`
	}
	return `
	WITH crowd AS MATERIALIZED (
		SELECT t.cohort_id, t.shard, t.n + COALESCE(d.n, 0) AS n
		FROM tally t
		LEFT JOIN (
			SELECT cohort_id, sum(n)::bigint AS n
			FROM tally_delta
			WHERE tenant_id = $1 AND cohort_id > 0 AND ` + postgres.Unfolded("tally_delta") + `
			GROUP BY cohort_id
		) d USING (cohort_id)
		WHERE t.tenant_id = $1 AND t.cohort_id > 0 AND t.n + COALESCE(d.n, 0) > 0` + of + `
	), whole AS MATERIALIZED (
		SELECT count(*) AS cohorts, COALESCE(sum(n), 0)::float8 AS members FROM crowd
	), top AS MATERIALIZED (
		SELECT cohort_id, shard, n FROM crowd ORDER BY n DESC, cohort_id LIMIT $2
	), least AS MATERIALIZED (
		SELECT n, cohort_id FROM top ORDER BY n, cohort_id DESC LIMIT 1
	), picked AS MATERIALIZED (
		SELECT cohort_id, shard, n, true AS large FROM top
		UNION ALL
		(SELECT c.cohort_id, c.shard, c.n, false
		FROM crowd c, whole w, least l
		WHERE w.cohorts > $2 AND c.cohort_id % ((w.cohorts - $2) / $3 + 1) = 0 AND (c.n < l.n OR c.n = l.n AND c.cohort_id > l.cohort_id)
		LIMIT 2 * $3)
	)
	SELECT p.shard, p.cohort_id, c.hash, c.workflow, p.n::float8, p.large, c.due_at IS NOT NULL, w.members, w.cohorts
	FROM whole w, picked p
	JOIN cohort c ON c.shard = p.shard AND c.id = p.cohort_id AND c.tenant_id = $1`, args
}
