package calendars

import (
	"bytes"
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

// A newer tz database retimes the cohorts in zones whose clocks differ from now on, and no others. Each process stores the database that
// it carries, and all processes put the newest one in force within seconds. Then all cohorts are compared with it, in steps. For each
// tenant with a changed cohort, an operation marks the changed cohorts, as an edit of a calendar does, and reports on each zone.

const (
	tzdataKind  = "tzdata"
	mostRezoned = 500 // cohorts in one step of an operation
)

// AdoptZones stores the tz database of an archive, for processes that
// carry an older one. Then it puts the newest stored database in force.
func AdoptZones(ctx context.Context, db postgres.DB, archive []byte) error {
	z, err := calendar.ReadZones(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	if z.Version() > calendar.InForce().Version() {
		calendar.Use(z)
	}
	if _, err := db.Exec(ctx, `INSERT INTO tzdata (version, archive) VALUES ($1, $2) ON CONFLICT DO NOTHING`, z.Version(), archive); err != nil {
		return fmt.Errorf("store tzdata: %w", err)
	}
	return RefreshZones(ctx, db)
}

// RefreshZones puts the newest tz database that is stored in force, if the one in force is older.
func RefreshZones(ctx context.Context, db postgres.DB) error {
	var archive []byte
	err := db.QueryRow(ctx, `SELECT archive FROM tzdata WHERE version > $1 ORDER BY version DESC LIMIT 1`, calendar.InForce().Version()).Scan(&archive)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read tzdata: %w", err)
	}
	z, err := calendar.ReadZones(bytes.NewReader(archive))
	if err != nil {
		return fmt.Errorf("stored tzdata: %w", err)
	}
	calendar.Use(z)
	return nil
}

// rezoneParams are those of an operation that retimes a tenant's cohorts by a tz database.
type rezoneParams struct {
	TZData string `json:"tzdata"`
}

// Rezoned counts the schedules in one zone that were retimed, and those of them whose next tick moved.
type Rezoned struct {
	Schedules int64 `json:"schedules"`
	Moved     int64 `json:"moved"`
}

// place is the key of a cohort timing. In the order of the keys, the timings of a tenant are together, shard by shard.
type place struct {
	Tenant   int32
	Shard    int16
	Hash     []byte
	Workflow string
	Missed   string
}

// startOf is the place before all timings of a tenant and shard.
func startOf(tenant int32, shard int16) place {
	return place{Tenant: tenant, Shard: shard, Hash: []byte{}}
}

// earlierZones is an SQL condition on a cohort c: it is not empty, an earlier tz database than $1 timed it, and it is not marked yet.
const earlierZones = `c.tzdata < $1 AND c.tzdata <> '' AND c.retime_at IS NULL AND c.empty_at IS NULL`

// rezoned is a cohort timing, with its cohort if an earlier tz database timed that cohort.
type rezoned struct {
	place
	ID       *int64
	Revision int64
	TZData   string
	Zone     string
	Members  int64
}

// rezoning is the cursor of an operation, which continues after the place At.
type rezoning struct {
	At    place
	Zones map[string]Rezoned
}

// rezoneStep marks the next cohorts of a tenant, shard by shard. From now on the new zones count for them.
func (cs *Calendars) rezoneStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	r := rezoning{At: startOf(int32(op.Tenant), 0), Zones: map[string]Rezoned{}}
	if _, err := op.Read(nil, &r); err != nil {
		return false, err
	}
	shard, more, err := nextShard(ctx, tx, r.At)
	if err != nil {
		return false, err
	}
	if more {
		if shard > r.At.Shard {
			r.At = startOf(r.At.Tenant, shard)
		}
		if err := cs.rezoneShard(ctx, tx, op, &r); err != nil {
			return false, err
		}
		if _, more, err = nextShard(ctx, tx, r.At); err != nil {
			return false, err
		}
	}
	op.Result = map[string]any{"zones": r.Zones}
	if !more && op.Done > 0 {
		version := calendar.InForce().Version()
		h := tenants.Happening{Event: tenants.TZDataRetimed, Cause: version, Data: map[string]any{
			"tzdata": version, "zones": r.Zones, "operation_id": cs.ids.Operation(op.ID),
		}}
		if err := tenants.Happened(ctx, tx, op.Tenant, h); err != nil {
			return false, err
		}
	}
	return !more, op.Keep(r)
}

const ShardAfter = `
		SELECT shard
		FROM cohort_timing
		WHERE tenant_id = $1 AND (shard, hash, workflow, missed) > ($2, $3, $4, $5)
		ORDER BY shard, hash, workflow, missed
		LIMIT 1`

// nextShard is the shard of a tenant's next cohort timing after a place; false where there is none.
func nextShard(ctx context.Context, tx pgx.Tx, at place) (shard int16, found bool, err error) {
	err = tx.QueryRow(ctx, ShardAfter, at.Tenant, at.Shard, at.Hash, at.Workflow, at.Missed).Scan(&shard)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look for cohorts: %w", err)
	}
	return shard, true, nil
}

// EarlierOfShard is a query for a tenant's next cohort timings in a shard. It finds the cohort of each timing by its number.
const EarlierOfShard = `
		SELECT n.hash, n.workflow, n.missed, c.id, COALESCE(c.revision, 0), COALESCE(c.tzdata, ''), COALESCE(CASE WHEN c.id IS NOT NULL THEN n.timing::json ->> 'zone' END, ''),
			(SELECT count(*) FROM member m WHERE m.cohort_id = c.id AND m.tenant_id = $2)
		FROM (
			SELECT tenant_id, shard, hash, workflow, missed, id, timing
			FROM cohort_timing
			WHERE tenant_id = $2 AND shard = $3 AND (hash, workflow, missed) > ($4, $5, $6)
			ORDER BY hash, workflow, missed
			LIMIT $7
		) n
		LEFT JOIN LATERAL (
			SELECT id, revision, tzdata
			FROM cohort c
			WHERE c.shard = n.shard AND c.id = n.id AND c.tenant_id = n.tenant_id AND ` + earlierZones + `
			LIMIT 1
		) c ON true
		ORDER BY n.hash, n.workflow, n.missed`

// rezoneShard marks the next cohorts of a tenant in a shard. It first takes the shared lock of the shard.
func (cs *Calendars) rezoneShard(ctx context.Context, tx pgx.Tx, op *operations.Operation, r *rezoning) error {
	if err := lockShared(ctx, tx, r.At.Shard); err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, EarlierOfShard, calendar.InForce().Version(), r.At.Tenant, r.At.Shard, r.At.Hash, r.At.Workflow, r.At.Missed, mostRezoned) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c rezoned, err error) {
		c.place = r.At
		return c, row.Scan(&c.Hash, &c.Workflow, &c.Missed, &c.ID, &c.Revision, &c.TZData, &c.Zone, &c.Members)
	})
	if err != nil {
		return fmt.Errorf("read cohorts: %w", err)
	}
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	marked, err := cs.rezone(ctx, tx, op, found, r.Zones, now.UTC())
	if err != nil {
		return err
	}
	if len(found) == mostRezoned {
		r.At = found[len(found)-1].place
	} else {
		r.At = startOf(r.At.Tenant, r.At.Shard+1)
	}
	if len(marked) == 0 {
		return nil
	}
	shard := found[0].Shard
	_, err = tx.Exec(ctx, `
		UPDATE cohort
		SET retime_at = $4, due_at = CASE WHEN due_at = 'infinity' THEN due_at ELSE LEAST(due_at, `+postgres.Now+`) END
		WHERE tenant_id = $1 AND shard = $2 AND id = ANY($3)`, op.Tenant, shard, marked, now)
	if err != nil {
		return fmt.Errorf("mark cohorts: %w", err)
	}
	return cohorts.WakeSweep(ctx, tx, shard)
}

// rezone picks the cohorts whose zones differ, and counts them by zone.
func (cs *Calendars) rezone(ctx context.Context, tx pgx.Tx, op *operations.Operation, found []rezoned, zones map[string]Rezoned, now time.Time) (marked []int64, err error) {
	changes := newZoneChanges(cs.timings, now)
	for _, c := range found {
		if c.ID == nil {
			continue
		}
		differ, err := changes.differ(ctx, tx, c.TZData, c.Zone)
		if err != nil {
			return nil, err
		}
		if !differ {
			continue
		}
		marked = append(marked, *c.ID)
		count := zones[c.Zone]
		count.Schedules += c.Members
		moved, err := cs.moves(ctx, tx, cohorts.CohortTiming{Tenant: op.Tenant, Shard: c.Shard, ID: *c.ID, Hash: c.Hash, Stamp: cohorts.Stamp{Revision: c.Revision, TZData: c.TZData}}, now)
		if err != nil {
			return nil, err
		}
		if moved {
			count.Moved += c.Members
		}
		zones[c.Zone] = count
		op.Done += c.Members
		op.Count("retimed", c.Members)
	}
	return marked, nil
}

// moves reports whether the next tick of a cohort changes with the tz database in force.
func (cs *Calendars) moves(ctx context.Context, tx pgx.Tx, c cohorts.CohortTiming, now time.Time) (bool, error) {
	timings, _, err := cs.timings.Of(ctx, tx, []cohorts.CohortTiming{c})
	if err != nil || timings[0] == nil {
		return false, err
	}
	fresh, _, err := cs.timings.Renew(ctx, tx, c.Tenant, timings[0])
	if cohorts.Uncomputable(err) { // the sweep quarantines it, if it has members
		return false, nil
	}
	if err != nil {
		return false, err
	}
	before, had := timings[0].Next(now)
	after, has := fresh.Next(now)
	return had != has || !before.At.Equal(after.At), nil
}
