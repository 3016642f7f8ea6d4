package cohorts

import (
	"context"
	"fmt"
	"unsafe"
	"weak"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/bytelru"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Timings caches compiled timings by the hash of their canonical form,
// so that a million members share one. It is safe for concurrent use.
type Timings struct {
	byHash   *bytelru.Cache[timingKey, *calendar.Timing]
	byCohort *lru.Cache[cohortVersion, timingKey]
	editions *bytelru.Cache[edition, []calendar.Date]
	warned   *lru.Cache[wording, dated]
	specs    *lru.Cache[string, calendar.Spec]
	weeks    *lru.Cache[weak.Pointer[calendar.Timing], week7]
	archives archives
}

// timingKey identifies all that a timing is compiled from. All tenants share the timings that name no calendar.
type timingKey struct {
	hash     [16]byte
	tenant   tenants.ID
	revision int64
	tzdata   string
}

// cohortVersion names a cohort whose timing lasts for as long as one version of the tz database is in force.
type cohortVersion struct {
	id     int64
	tzdata string
}

// Stamp names the data with which a cohort is timed: the revision of its
// tenant's calendars (0: it names none), and the version of the tz database.
type Stamp struct {
	Revision int64
	TZData   string
}

const (
	timingsKept  = 100_000
	timingBytes  = 32 << 20 // of compiled timings
	editionBytes = 16 << 20 // of calendars
	warningsKept = 10_000
)

// NewTimings returns an empty cache.
func NewTimings() *Timings {
	return &Timings{
		byHash:   bytelru.New[timingKey](timingBytes, (*calendar.Timing).Bytes),
		byCohort: Kept[cohortVersion, timingKey](timingsKept),
		editions: bytelru.New[edition](editionBytes, func(dates []calendar.Date) int { return len(dates) * int(unsafe.Sizeof(calendar.Date{})) }),
		warned:   Kept[wording, dated](warningsKept),
		specs:    Kept[string, calendar.Spec](warningsKept),
		weeks:    Kept[weak.Pointer[calendar.Timing], week7](timingsKept),
	}
}

func Kept[K comparable, V any](size int) *lru.Cache[K, V] {
	c, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return c
}

// Keep returns the cached timing that equals t, or caches t. a is the set of calendars with which t was compiled.
func (ts *Timings) Keep(tenant tenants.ID, t *calendar.Timing, a *CalendarSet) *calendar.Timing {
	key := timingKey{hash: t.Hash(), tzdata: t.Zones().Version()}
	if len(t.Named()) > 0 {
		if a == nil { // the revision of its calendars is not known
			return t
		}
		key.tenant, key.revision = tenant, a.At()
	}
	if kept, ok := ts.byHash.Get(key); ok {
		return kept
	}
	ts.byHash.Add(key, t)
	return t
}

// CohortTiming names one cohort, with the hash of its timing and its stamp.
type CohortTiming struct {
	Tenant tenants.ID
	Shard  int16
	ID     int64
	Hash   []byte
	Stamp
}

func (c CohortTiming) key() timingKey {
	key := timingKey{hash: [16]byte(c.Hash), revision: c.Revision, tzdata: c.TZData}
	if c.TZData == "" { // a cohort with fixed_delay is timed by the tz database in force
		key.tzdata = calendar.InForce().Version()
	}
	if c.Revision != 0 {
		key.tenant = c.Tenant
	}
	return key
}

// timingOf reads the timing of a cohort c. OFFSET 0 makes the planner use the index, whatever statistics it has of the table.
const timingOf = `
			SELECT timing
			FROM cohort_timing
			WHERE tenant_id = c.tenant_id AND shard = c.shard AND hash = c.hash AND workflow = c.workflow AND missed = c.missed
			OFFSET 0`

// compiledForm is the timing of a cohort as it is stored.
type compiledForm struct {
	ID        int64
	Timing    string
	Calendars []string
}

// Of returns the timing of each cohort, in the order of cohorts. It reads the timings that are
// not cached, each of them once even if many cohorts share it. The timing of a cohort that is
// gone is nil. So is a timing that cannot be compiled; bad has its error under the cohort's id.
func (ts *Timings) Of(ctx context.Context, db postgres.DB, cohorts []CohortTiming) (timings []*calendar.Timing, bad map[int64]error, err error) {
	timings = make([]*calendar.Timing, len(cohorts))
	var ask, alike []int // the first cohort of each timing to read, and the other cohorts of the same timings
	asked := map[timingKey]int{}
	for i, c := range cohorts {
		key := c.key()
		if kept, ok := ts.byHash.Get(key); ok {
			timings[i] = kept
			continue
		}
		if _, ok := asked[key]; ok {
			alike = append(alike, i)
			continue
		}
		asked[key], ask = i, append(ask, i)
	}
	bad = map[int64]error{}
	for len(ask) > 0 {
		if err := ts.fill(ctx, db, cohorts, ask, timings, bad); err != nil {
			return nil, nil, err
		}
		ask = ask[:0]
		for _, i := range alike {
			if timings[i] = timings[asked[cohorts[i].key()]]; timings[i] == nil { // the first cohort is gone or broken: read each other one
				ask = append(ask, i)
			}
		}
		alike = nil
	}
	return timings, bad, nil
}

// fill reads the timings of some of the cohorts.
func (ts *Timings) fill(ctx context.Context, db postgres.DB, cohorts []CohortTiming, ask []int, timings []*calendar.Timing, bad map[int64]error) error {
	shards, ids, owners := make([]int16, len(ask)), make([]int64, len(ask)), make([]int32, len(ask))
	for n, i := range ask {
		shards[n], ids[n], owners[n] = cohorts[i].Shard, cohorts[i].ID, int32(cohorts[i].Tenant)
	}
	rows, _ := db.Query(ctx, `
		SELECT c.id, t.timing, c.calendars
		FROM unnest($1::smallint[], $2::bigint[], $3::int[]) AS n (shard, id, tenant_id)
		CROSS JOIN LATERAL (SELECT * FROM cohort WHERE shard = n.shard AND id = n.id AND tenant_id = n.tenant_id OFFSET 0) c
		CROSS JOIN LATERAL (`+timingOf+`) t`, shards, ids, owners) // CollectRows reports the error
	forms, err := pgx.CollectRows(rows, pgx.RowToStructByName[compiledForm])
	if err != nil {
		return fmt.Errorf("read timings: %w", err)
	}
	byID := make(map[int64]compiledForm, len(forms))
	for _, f := range forms {
		byID[f.ID] = f
	}
	for _, i := range ask {
		c := cohorts[i]
		form, found := byID[c.ID]
		if !found {
			continue
		}
		t, broken, err := ts.read(ctx, db, c, form)
		if err != nil {
			return err
		}
		if broken != nil {
			bad[c.ID] = broken
			continue
		}
		timings[i] = t
	}
	return nil
}

// read compiles the timing of a cohort with the data that its stamp names. broken is the reason why it cannot be compiled.
func (ts *Timings) read(ctx context.Context, db postgres.DB, c CohortTiming, form compiledForm) (t *calendar.Timing, broken, err error) {
	if kept, ok := ts.byHash.Get(c.key()); ok { // an earlier cohort has the same timing
		return kept, nil, nil
	}
	a, err := ts.calendarSet(ctx, db, c.Tenant, form.Calendars, c.Revision)
	if err != nil {
		return nil, nil, err
	}
	zones, err := ts.zones(ctx, db, c.TZData)
	if err != nil {
		return nil, nil, err
	}
	t, broken = calendar.FromCanonical([]byte(form.Timing), calendar.Context{Named: a.named, Zones: zones})
	if broken != nil && zones != calendar.InForce() { // that database may lack a newer zone
		t, broken = calendar.FromCanonical([]byte(form.Timing), calendar.Context{Named: a.named})
	}
	if broken == nil {
		key := c.key()
		if c.TZData == "" {
			key.tzdata = t.Zones().Version()
		}
		ts.byHash.Add(key, t)
	}
	return t, broken, nil
}

// Remember notes the timing of a cohort that Of has returned, so that Kept and ByCohort find it by the cohort's id.
func (ts *Timings) Remember(c CohortTiming) {
	if inForce := calendar.InForce().Version(); c.Revision == 0 && (c.TZData == "" || c.TZData == inForce) {
		ts.byCohort.Add(cohortVersion{c.ID, inForce}, c.key())
	}
}

// Kept returns the timing of a cohort if it is cached, otherwise nil.
func (ts *Timings) Kept(cohort int64) *calendar.Timing {
	return ts.kept(cohort, calendar.InForce().Version())
}

func (ts *Timings) kept(cohort int64, inForce string) *calendar.Timing {
	key, ok := ts.byCohort.Get(cohortVersion{cohort, inForce})
	if !ok {
		return nil
	}
	t, _ := ts.byHash.Get(key)
	return t
}

// ByCohort returns the timings of some cohorts of one tenant by their ids. It reads only those that are not cached. The result lacks a
// cohort that is gone, and one whose timing cannot be compiled: its error is in bad.
func (ts *Timings) ByCohort(ctx context.Context, db postgres.DB, tenant tenants.ID, shards []int16, ids []int64) (found map[int64]*calendar.Timing, bad map[int64]error, err error) {
	found = make(map[int64]*calendar.Timing, len(ids))
	var names []CohortTiming
	var askShards []int16
	var askIDs []int64
	inForce := calendar.InForce().Version()
	for i, id := range ids {
		if t := ts.kept(id, inForce); t != nil {
			found[id] = t
			continue
		}
		askShards, askIDs = append(askShards, shards[i]), append(askIDs, id)
	}
	if len(askIDs) == 0 {
		return found, nil, nil
	}
	rows, err := db.Query(ctx, `
		SELECT c.shard, c.id, c.hash, c.revision, c.tzdata
		FROM unnest($2::smallint[], $3::bigint[]) AS n (shard, id)
		JOIN cohort c ON c.shard = n.shard AND c.id = n.id AND c.tenant_id = $1`, tenant, askShards, askIDs)
	if err != nil {
		return nil, nil, fmt.Errorf("read cohorts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		name := CohortTiming{Tenant: tenant}
		if err := rows.Scan(&name.Shard, &name.ID, &name.Hash, &name.Revision, &name.TZData); err != nil {
			return nil, nil, fmt.Errorf("read cohorts: %w", err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, fmt.Errorf("read cohorts: %w", err)
	}
	timings, bad, err := ts.Of(ctx, db, names)
	if err != nil {
		return nil, nil, err
	}
	for i, t := range timings {
		if t != nil {
			found[names[i].ID] = t
			lasts, err := ts.lasts(ctx, db, names[i], t)
			if err != nil {
				return nil, nil, err
			}
			if lasts {
				ts.byCohort.Add(cohortVersion{names[i].ID, inForce}, names[i].key())
			}
		}
	}
	return found, bad, nil
}
