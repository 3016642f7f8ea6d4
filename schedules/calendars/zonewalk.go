package calendars

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

const (
	knownAfter   = 15 * time.Second // after so long every process uses a version that one of them has stored
	walkFor      = 30 * time.Second // how long one call compares cohorts; the next call goes on
	mostCompared = 5000             // cohorts in one step of the comparison
	mostBegun    = 100              // operations in one step of the comparison
)

// BeginRezoning compares all cohorts with the tz database in force, once every process knows it. It
// begins an operation for each tenant with a cohort that the database changes. A minute later it does so
// once more, for cohorts that were made meanwhile by a process that did not know the database. A call
// works for half a minute at most, in one process at a time, and the next call continues where it ended.
func BeginRezoning(ctx context.Context, db TxBeginner, ts *cohorts.Timings, ops *operations.Operations) error {
	began := time.Now()
	w := &zoneWalk{ops: ops, zoneChanges: newZoneChanges(ts, began)}
	for {
		var more bool
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
			more, err = w.step(ctx, tx)
			return err
		})
		if err != nil || !more || time.Since(began) > walkFor {
			return err
		}
	}
}

// zoneWalk compares the cohorts of all tenants with the tz database in force, tenant by tenant.
type zoneWalk struct {
	ops *operations.Operations
	*zoneChanges
}

// step compares the next cohorts, and begins operations of their tenants. more reports that other cohorts follow.
func (w *zoneWalk) step(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	var version string
	var at place
	var earlier bool
	err = tx.QueryRow(ctx, `
		SELECT version, COALESCE(walked, $3::jsonb), EXISTS (SELECT FROM tzdata e WHERE e.version < $1)
		FROM tzdata
		WHERE version = $1 AND begun < 2 AND added_at + $2::interval + begun * interval '1 minute' < `+postgres.Now+`
		FOR UPDATE SKIP LOCKED`, calendar.InForce().Version(), knownAfter, startOf(0, 0)).Scan(&version, &at, &earlier)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a new tzdata: %w", err)
	}
	var concerned []tenants.ID
	if earlier { // otherwise no cohort has an earlier version, because each process stores its own first
		if concerned, at, more, err = w.compare(ctx, tx, version, at); err != nil {
			return false, err
		}
	}
	if len(concerned) > 0 {
		if _, err := w.ops.BeginEach(ctx, tx, concerned, operations.Request{Kind: tzdataKind, Params: rezoneParams{version}, By: "carillon"}); err != nil {
			return false, err
		}
	}
	if more {
		_, err = tx.Exec(ctx, `UPDATE tzdata SET walked = $2 WHERE version = $1`, version, at)
	} else {
		_, err = tx.Exec(ctx, `UPDATE tzdata SET walked = NULL, begun = begun + 1 WHERE version = $1`, version)
	}
	if err != nil {
		return false, fmt.Errorf("note which cohorts were compared: %w", err)
	}
	return more, nil
}

// EarlierCohorts is a query for the next cohort timings of all tenants. It finds the cohort of each timing by its number.
const EarlierCohorts = `
		SELECT n.tenant_id, n.shard, n.hash, n.workflow, n.missed, c.id, COALESCE(c.tzdata, ''), COALESCE(CASE WHEN c.id IS NOT NULL THEN n.timing::json ->> 'zone' END, '')
		FROM (
			SELECT tenant_id, shard, hash, workflow, missed, id, timing
			FROM cohort_timing
			WHERE (tenant_id, shard, hash, workflow, missed) > ($2, $3, $4, $5, $6)
			ORDER BY tenant_id, shard, hash, workflow, missed
			LIMIT $7
		) n
		LEFT JOIN LATERAL (
			SELECT id, tzdata
			FROM cohort c
			WHERE c.shard = n.shard AND c.id = n.id AND c.tenant_id = n.tenant_id AND ` + earlierZones + `
			LIMIT 1
		) c ON true
		ORDER BY n.tenant_id, n.shard, n.hash, n.workflow, n.missed`

// compare finds the tenants with changed cohorts among the next cohorts after a place, and the place after which to continue. After the
// first changed cohort of a tenant it skips the others of that tenant.
func (w *zoneWalk) compare(ctx context.Context, tx pgx.Tx, version string, at place) (concerned []tenants.ID, after place, more bool, err error) {
	rows, _ := tx.Query(ctx, EarlierCohorts, version, at.Tenant, at.Shard, at.Hash, at.Workflow, at.Missed, mostCompared) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c rezoned, err error) {
		return c, row.Scan(&c.Tenant, &c.Shard, &c.Hash, &c.Workflow, &c.Missed, &c.ID, &c.TZData, &c.Zone)
	})
	if err != nil {
		return nil, at, false, fmt.Errorf("compare cohorts: %w", err)
	}
	for _, c := range found {
		if at.Tenant == c.Tenant && at.Shard == cohorts.Shards {
			continue
		}
		at = c.place
		if c.ID == nil {
			continue
		}
		differ, err := w.differ(ctx, tx, c.TZData, c.Zone)
		if err != nil {
			return nil, at, false, err
		}
		if !differ {
			continue
		}
		at = startOf(c.Tenant, cohorts.Shards) // after all cohorts of the tenant
		if concerned = append(concerned, tenants.ID(c.Tenant)); len(concerned) == mostBegun {
			return concerned, at, true, nil
		}
	}
	return concerned, at, len(found) == mostCompared, nil
}

// zoneChanges remembers which zones differ between earlier versions and the tz database in force.
type zoneChanges struct {
	timings *cohorts.Timings
	since   time.Time
	known   map[string]map[string]bool
}

func newZoneChanges(ts *cohorts.Timings, since time.Time) *zoneChanges {
	return &zoneChanges{timings: ts, since: since, known: map[string]map[string]bool{}}
}

// differ reports whether the clocks of a zone differ from some time on between a version and the one in force.
func (z *zoneChanges) differ(ctx context.Context, db postgres.DB, version, zone string) (bool, error) {
	names, known := z.known[version]
	if !known {
		list, err := z.timings.Changed(ctx, db, version, calendar.InForce(), z.since)
		if err != nil {
			return false, err
		}
		names = make(map[string]bool, len(list))
		for _, name := range list {
			names[name] = true
		}
		z.known[version] = names
	}
	return names[zone], nil
}
