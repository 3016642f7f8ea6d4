package schedules

import (
	"context"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Timings keeps compiled timings by the hash of what they say, so that a million members share one. It is safe for
// concurrent use.
type Timings struct {
	byHash   *lru.Cache[[16]byte, *calendar.Timing]
	byCohort *lru.Cache[int64, *calendar.Timing]
	warned   *lru.Cache[wording, dated]
	weeks    *lru.Cache[*calendar.Timing, week7]
}

const (
	timingsKept  = 100_000
	warningsKept = 10_000
)

// NewTimings returns an empty cache.
func NewTimings() *Timings {
	return &Timings{
		kept[[16]byte, *calendar.Timing](timingsKept),
		kept[int64, *calendar.Timing](timingsKept),
		kept[wording, dated](warningsKept),
		kept[*calendar.Timing, week7](timingsKept),
	}
}

func kept[K comparable, V any](size int) *lru.Cache[K, V] {
	c, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // its size is no more than zero
	}
	return c
}

// keep returns the one timing that is kept for those that equal t.
func (ts *Timings) keep(t *calendar.Timing) *calendar.Timing {
	hash := t.Hash()
	if kept, ok := ts.byHash.Get(hash); ok {
		return kept
	}
	ts.byHash.Add(hash, t)
	return t
}

// Cohort names one cohort and the hash of its timing.
type CohortTiming struct {
	Tenant tenants.ID
	Shard  int16
	ID     int64
	Hash   []byte
}

// Of returns the timing of each cohort, in their order; those that are not kept are read in one query. A timing that
// cannot be compiled is nil, with its error in bad under the cohort's id.
func (ts *Timings) Of(ctx context.Context, db postgres.DB, cohorts []CohortTiming) (timings []*calendar.Timing, bad map[int64]error, err error) {
	timings = make([]*calendar.Timing, len(cohorts))
	var shards []int16
	var ids []int64
	var owners []int32
	for i, c := range cohorts {
		if kept, ok := ts.byHash.Get([16]byte(c.Hash)); ok {
			timings[i] = kept
			continue
		}
		shards, ids, owners = append(shards, c.Shard), append(ids, c.ID), append(owners, int32(c.Tenant))
	}
	if len(ids) == 0 {
		return timings, nil, nil
	}
	texts := map[int64]string{}
	rows, err := db.Query(ctx, `
		SELECT c.id, c.timing
		FROM unnest($1::smallint[], $2::bigint[], $3::int[]) AS n (shard, id, tenant_id)
		JOIN cohort c ON c.shard = n.shard AND c.id = n.id AND c.tenant_id = n.tenant_id`, shards, ids, owners)
	if err != nil {
		return nil, nil, fmt.Errorf("read timings: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, nil, fmt.Errorf("read timings: %w", err)
		}
		texts[id] = text
	}
	if err := rows.Err(); err != nil {
		return nil, nil, fmt.Errorf("read timings: %w", err)
	}
	for i, c := range cohorts {
		text, found := texts[c.ID]
		if timings[i] != nil || !found {
			continue
		}
		t, err := calendar.FromCanonical([]byte(text), calendar.Context{})
		if err != nil {
			if bad == nil {
				bad = map[int64]error{}
			}
			bad[c.ID] = err
			continue
		}
		timings[i] = ts.keep(t)
	}
	return timings, bad, nil
}

// ByCohort returns the timings of cohorts of one tenant by their ids, each read at most once while it is kept. One
// that is gone, or cannot be compiled, is missing.
func (ts *Timings) ByCohort(ctx context.Context, db postgres.DB, tenant tenants.ID, shards []int16, ids []int64) (map[int64]*calendar.Timing, error) {
	found := make(map[int64]*calendar.Timing, len(ids))
	var names []CohortTiming
	var askShards []int16
	var askIDs []int64
	for i, id := range ids {
		if kept, ok := ts.byCohort.Get(id); ok {
			found[id] = kept
			continue
		}
		askShards, askIDs = append(askShards, shards[i]), append(askIDs, id)
	}
	if len(askIDs) == 0 {
		return found, nil
	}
	rows, err := db.Query(ctx, `
		SELECT c.shard, c.id, c.hash
		FROM unnest($2::smallint[], $3::bigint[]) AS n (shard, id)
		JOIN cohort c ON c.shard = n.shard AND c.id = n.id AND c.tenant_id = $1`, tenant, askShards, askIDs)
	if err != nil {
		return nil, fmt.Errorf("read cohorts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		name := CohortTiming{Tenant: tenant}
		if err := rows.Scan(&name.Shard, &name.ID, &name.Hash); err != nil {
			return nil, fmt.Errorf("read cohorts: %w", err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read cohorts: %w", err)
	}
	timings, _, err := ts.Of(ctx, db, names)
	if err != nil {
		return nil, err
	}
	for i, t := range timings {
		if t != nil {
			found[names[i].ID] = t
			ts.byCohort.Add(names[i].ID, t)
		}
	}
	return found, nil
}

// fetch reads the timings of rows of one tenant that are not kept yet, in one query.
func (ts *Timings) fetch(ctx context.Context, db postgres.DB, tenant tenants.ID, rows []*row) error {
	var names []CohortTiming
	for _, r := range rows {
		if r.CohortID != nil {
			names = append(names, CohortTiming{tenant, r.Shard, *r.CohortID, r.Hash})
		}
	}
	_, _, err := ts.Of(ctx, db, names)
	return err
}

// wording is a timing and the text that says it: what warnings depend on.
type wording struct {
	hash [16]byte
	spec string
}

// dated are the warnings of one day: finding them takes compiling the spec.
type dated struct {
	day  int64
	list []calendar.Warning
}

// warnings are those of the row's own spec, as of the day of now; t is its timing.
func (ts *Timings) warnings(r *row, t *calendar.Timing, tenant tenants.ID, now time.Time) []calendar.Warning {
	key, day := wording{spec: r.Spec}, now.Unix()/secondsPerDay
	if copy(key.hash[:], r.Hash) == 0 { // not a member
		key.hash = t.Hash()
	}
	if known, ok := ts.warned.Get(key); ok && known.day == day {
		return known.list
	}
	if own, err := r.compile(tenant); err == nil {
		t = own // the one that is kept may be of another wording
	}
	list := t.Warnings(now)
	ts.warned.Add(key, dated{day, list})
	return list
}

const secondsPerDay = 24 * 60 * 60

// StoredSpec is the spec of one version of a schedule, with what its timing is compiled from beside it.
type StoredSpec struct {
	Workflow, Key string
	Spec          string
	AnchorAt      time.Time
	HashedAs      *string // the key that it had when it was made, where it was renamed
}

// FromSpec compiles the stored spec of a schedule of a tenant, with what its key says now.
func (ts *Timings) FromSpec(ctx context.Context, db postgres.DB, tenant tenants.ID, s StoredSpec) (*calendar.Timing, error) {
	found, err := readProfiles(ctx, db, tenant, s.Key)
	if err != nil {
		return nil, err
	}
	r := row{Workflow: s.Workflow, Key: s.Key, Spec: s.Spec, AnchorAt: s.AnchorAt, HashedAs: s.HashedAs, storedProfile: found[s.Key].stored()}
	return r.compile(tenant)
}
