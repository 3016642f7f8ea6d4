package schedules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// A newer tz database retimes what it changes, and nothing else: cohorts in zones whose clocks differ from now on. Each
// process stores what it carries, and all put the newest in force within seconds. Then an operation of each tenant that
// is concerned tells its cohorts, as an edit of a calendar does, and reports on each zone.

const (
	tzdataKind  = "tzdata"
	knownAfter  = 15 * time.Second // by then every process has put a version in force that one has stored
	mostRezoned = 500              // cohorts in one step
)

// AdoptZones stores the tz database of an archive, for processes that carry an older one, and puts the newest that is
// stored in force.
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

// Rezoned is what became of the schedules in one zone: how many are timed anew, and of how many the next tick moved.
type Rezoned struct {
	Schedules int64 `json:"schedules"`
	Moved     int64 `json:"moved"`
}

// BeginRezoning begins, once every process knows the tz database in force, an operation for each tenant that has cohorts
// which it changes; and again a minute later, for those that a process made meanwhile that did not know it.
func BeginRezoning(ctx context.Context, db TxBeginner, ts *Timings, ops *Operations) error {
	present := calendar.InForce()
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var version string
		err := tx.QueryRow(ctx, `
			SELECT version
			FROM tzdata
			WHERE version = $1 AND begun < 2 AND added_at + $2::interval + begun * interval '1 minute' < clock_timestamp()
			FOR UPDATE SKIP LOCKED`, present.Version(), knownAfter).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for a new tzdata: %w", err)
		}
		rows, _ := tx.Query(ctx, `SELECT DISTINCT tzdata FROM cohort WHERE tzdata < $1 AND tzdata <> ''`, version) // CollectRows reports the error
		olds, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("look for earlier tzdata: %w", err)
		}
		begun := map[int32]bool{}
		for _, old := range olds {
			changed, err := ts.changed(ctx, tx, old, present, time.Now())
			if err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, `
				SELECT DISTINCT c.tenant_id
				FROM cohort c
				CROSS JOIN LATERAL (`+timingOf+`) t
				WHERE c.tzdata = $1 AND t.timing::json ->> 'zone' = ANY($2) AND c.empty_at IS NULL`, old, changed) // CollectRows reports the error
			owners, err := pgx.CollectRows(rows, pgx.RowTo[int32])
			if err != nil {
				return fmt.Errorf("look for cohorts of changed zones: %w", err)
			}
			for _, owner := range owners {
				begun[owner] = true
			}
		}
		for owner := range begun {
			_, err := ops.Begin(ctx, tx, Begun{Tenant: tenants.ID(owner), Kind: tzdataKind, Params: rezoneParams{version}, By: "carillon"})
			if _, full := errors.AsType[*fault.Error](err); err != nil && !full {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE tzdata SET begun = begun + 1 WHERE version = $1`, version)
		return err
	})
}

// changed are the zones whose clocks differ from a moment on between an earlier version and another.
func (ts *Timings) changed(ctx context.Context, db postgres.DB, old string, to *calendar.Zones, since time.Time) ([]string, error) {
	before, err := ts.zones(ctx, db, old)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, c := range before.DiffSince(to, since) {
		if !c.Gone {
			names = append(names, c.Zone)
		}
	}
	return names, nil
}

// rezoned is a cohort in a zone that may have changed.
type rezoned struct {
	ID       int64
	Hash     []byte
	Revision int64
	TZData   string `db:"tzdata"`
	Zone     string
	Members  int64
}

// rezoneStep tells the next cohorts of a tenant, shard by shard, that other zones count from now on.
func (s *Schedules) rezoneStep(ctx context.Context, tx pgx.Tx, op *Operation) (done bool, err error) {
	var at struct {
		Shard int16
		ID    int64
		Zones map[string]Rezoned
	}
	if _, err := op.Read(nil, &at); err != nil {
		return false, err
	}
	if at.Zones == nil {
		at.Zones = map[string]Rezoned{}
	}
	if err := lockShared(ctx, tx, at.Shard); err != nil {
		return false, err
	}
	present := calendar.InForce()
	rows, _ := tx.Query(ctx, `
		SELECT c.id, c.hash, c.revision, c.tzdata, t.timing::json ->> 'zone' AS zone,
			(SELECT count(*) FROM member m WHERE m.cohort_id = c.id AND m.tenant_id = $1) AS members
		FROM cohort c
		CROSS JOIN LATERAL (`+timingOf+`) t
		WHERE c.tenant_id = $1 AND c.shard = $2 AND c.id > $3 AND c.tzdata < $4 AND c.tzdata <> '' AND c.retime_at IS NULL AND c.empty_at IS NULL
		ORDER BY c.id
		LIMIT $5`, op.Tenant, at.Shard, at.ID, present.Version(), mostRezoned) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[rezoned])
	if err != nil {
		return false, fmt.Errorf("read cohorts: %w", err)
	}
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return false, fmt.Errorf("read clock: %w", err)
	}
	told, err := s.rezone(ctx, tx, op, at.Shard, found, at.Zones, now.UTC())
	if err != nil {
		return false, err
	}
	if len(told) > 0 {
		_, err := tx.Exec(ctx, `
			UPDATE cohort
			SET retime_at = $4, due_at = CASE WHEN due_at = 'infinity' THEN due_at ELSE LEAST(due_at, $4) END
			WHERE tenant_id = $1 AND shard = $2 AND id = ANY($3)`, op.Tenant, at.Shard, told, now)
		if err != nil {
			return false, fmt.Errorf("mark cohorts: %w", err)
		}
		if _, err := tx.Exec(ctx, `SELECT pg_notify($1, $2)`, DueChannel, strconv.Itoa(int(at.Shard))); err != nil {
			return false, fmt.Errorf("wake the sweep: %w", err)
		}
	}
	if len(found) == mostRezoned {
		at.ID = found[len(found)-1].ID
	} else {
		at.Shard, at.ID = at.Shard+1, 0
	}
	op.Result = map[string]any{"zones": at.Zones}
	done = at.Shard == Shards
	if done && op.Done > 0 {
		h := tenants.Happening{Event: tenants.TZDataRetimed, Cause: present.Version(), Data: map[string]any{
			"tzdata": present.Version(), "zones": at.Zones, "operation_id": s.IDs.Operation(op.ID),
		}}
		if err := tenants.Happened(ctx, tx, op.Tenant, h); err != nil {
			return false, err
		}
	}
	return done, op.Keep(at)
}

// rezone picks the cohorts whose zones differ, and counts them by zone.
func (s *Schedules) rezone(ctx context.Context, tx pgx.Tx, op *Operation, shard int16, found []rezoned, zones map[string]Rezoned, now time.Time) (told []int64, err error) {
	changed := map[string]map[string]bool{}
	for _, c := range found {
		names, known := changed[c.TZData]
		if !known {
			list, err := s.Timings.changed(ctx, tx, c.TZData, calendar.InForce(), now)
			if err != nil {
				return nil, err
			}
			names = map[string]bool{}
			for _, name := range list {
				names[name] = true
			}
			changed[c.TZData] = names
		}
		if !names[c.Zone] {
			continue
		}
		told = append(told, c.ID)
		count := zones[c.Zone]
		count.Schedules += c.Members
		moved, err := s.moves(ctx, tx, CohortTiming{op.Tenant, shard, c.ID, c.Hash, Stamp{c.Revision, c.TZData}}, now)
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
	return told, nil
}

// moves tells whether the next tick of a cohort is another by the tz database in force.
func (s *Schedules) moves(ctx context.Context, tx pgx.Tx, c CohortTiming, now time.Time) (bool, error) {
	timings, _, err := s.Timings.Of(ctx, tx, []CohortTiming{c})
	if err != nil || timings[0] == nil {
		return false, err
	}
	fresh, _, err := s.Timings.renew(ctx, tx, c.Tenant, timings[0])
	if Uncomputable(err) { // the sweep quarantines it, if it has members
		return false, nil
	}
	if err != nil {
		return false, err
	}
	before, had := timings[0].Next(now)
	after, has := fresh.Next(now)
	return had != has || !before.At.Equal(after.At), nil
}
