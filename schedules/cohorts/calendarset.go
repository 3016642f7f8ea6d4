package cohorts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// CalendarSet is some of a tenant's named calendars as of one revision. A nil one has none.
type CalendarSet struct {
	revision int64
	dates    map[string][]calendar.Date
}

// named is the Named function of a calendar.Context.
func (a *CalendarSet) named(name string) ([]calendar.Date, bool) {
	if a == nil {
		return nil, false
	}
	dates, ok := a.dates[name]
	return dates, ok
}

// In returns the context with the calendars of the set.
func (a *CalendarSet) In(c calendar.Context) calendar.Context {
	c.Named = a.named
	return c
}

// At returns the revision of the set; 0 if it names no calendar.
func (a *CalendarSet) At() int64 {
	if a == nil {
		return 0
	}
	return a.revision
}

// edition names what a calendar held from one revision on.
type edition struct {
	tenant tenants.ID
	name   string
	since  int64
}

// CalendarsNow returns the present calendars of a tenant that have one of the names. Without names it reads nothing and returns nil.
func (ts *Timings) CalendarsNow(ctx context.Context, db postgres.DB, tenant tenants.ID, names []string) (*CalendarSet, error) {
	return ts.calendarSet(ctx, db, tenant, names, 0)
}

// HoldCalendars is CalendarsNow that also keeps the tenant's calendars unchanged until the transaction ends. An edit must wait, and then
// finds the cohorts that the transaction makes.
func (ts *Timings) HoldCalendars(ctx context.Context, tx pgx.Tx, tenant tenants.ID, names []string) (*CalendarSet, error) {
	if len(names) == 0 {
		return nil, nil
	}
	if _, err := tx.Exec(ctx, `SELECT FROM calendar_revision WHERE tenant_id = $1 FOR SHARE`, tenant); err != nil {
		return nil, fmt.Errorf("hold calendars: %w", err)
	}
	return ts.calendarSet(ctx, tx, tenant, names, 0)
}

// calendarSet reads the calendars of a tenant as of a revision (0: the present one). If the old edition of a calendar is no longer
// stored, it takes the present edition instead.
func (ts *Timings) calendarSet(ctx context.Context, db postgres.DB, tenant tenants.ID, names []string, revision int64) (*CalendarSet, error) {
	if len(names) == 0 {
		return nil, nil
	}
	rows, _ := db.Query(ctx, `
		SELECT r.revision, c.name, c.since
		FROM calendar_revision r
		LEFT JOIN calendar c ON c.tenant_id = r.tenant_id AND c.name = ANY($2) AND CASE WHEN $3::bigint = 0
			THEN c.until IS NULL
			ELSE c.since <= $3 AND (c.until IS NULL OR c.until > $3)
		END
		WHERE r.tenant_id = $1`, tenant, names, revision) // ForEachRow reports the error
	a := &CalendarSet{dates: map[string][]calendar.Date{}}
	var name *string
	var since *int64
	var unread []edition
	_, err := pgx.ForEachRow(rows, []any{&a.revision, &name, &since}, func() error {
		if name == nil {
			return nil
		}
		e := edition{tenant, *name, *since}
		if dates, ok := ts.editions.Get(e); ok {
			a.dates[e.name] = dates
		} else {
			unread = append(unread, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read calendars: %w", err)
	}
	for _, e := range unread {
		if err := ts.readEdition(ctx, db, e, a); err != nil {
			return nil, err
		}
	}
	if revision == 0 {
		return a, nil
	}
	lost := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return a.dates[n] != nil })
	if len(lost) > 0 {
		now, err := ts.calendarSet(ctx, db, tenant, lost, 0)
		if err != nil {
			return nil, err
		}
		for name, dates := range now.dates {
			a.dates[name] = dates
		}
	}
	a.revision = revision
	return a, nil
}

// readEdition adds an edition to a set, unless the edition was deleted.
func (ts *Timings) readEdition(ctx context.Context, db postgres.DB, e edition, a *CalendarSet) error {
	var days []time.Time
	err := db.QueryRow(ctx, `SELECT dates FROM calendar WHERE tenant_id = $1 AND name = $2 AND since = $3`, e.tenant, e.name, e.since).Scan(&days)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read calendar: %w", err)
	}
	dates := DatesOf(days)
	ts.editions.Add(e, dates)
	a.dates[e.name] = dates
	return nil
}

// DatesOf returns the dates of days that the database stores.
func DatesOf(days []time.Time) []calendar.Date {
	dates := make([]calendar.Date, len(days))
	for i, d := range days {
		dates[i] = calendar.Date{Year: d.Year(), Month: d.Month(), Day: d.Day()}
	}
	return dates
}

// Renewed compiles a timing again with a set of calendars and the tz database in force, and returns it with the revision of the set. A
// timing whose zone this database lacks stays with its own database.
func (ts *Timings) Renewed(tenant tenants.ID, t *calendar.Timing, a *CalendarSet) (*calendar.Timing, int64, error) {
	key := timingKey{hash: t.Hash(), revision: a.At(), tzdata: calendar.InForce().Version()}
	if a != nil {
		key.tenant = tenant
	}
	if kept, ok := ts.byHash.Get(key); ok {
		return kept, a.At(), nil
	}
	fresh, err := calendar.FromCanonical(t.Canonical(), calendar.Context{Named: a.named})
	if err != nil && t.Zones() != calendar.InForce() {
		key.tzdata = t.Zones().Version()
		fresh, err = calendar.FromCanonical(t.Canonical(), calendar.Context{Named: a.named, Zones: t.Zones()})
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUncomputable, err)
	}
	ts.byHash.Add(key, fresh)
	return fresh, a.At(), nil
}

// Renew compiles a timing again with the present calendars and the tz database in force, and returns it with the revision of the
// calendars (0: it names none). The calendars cannot change until the transaction ends. If the timing cannot be computed any more, the
// error is ErrUncomputable, and the transaction can go on.
func (ts *Timings) Renew(ctx context.Context, tx pgx.Tx, tenant tenants.ID, t *calendar.Timing) (*calendar.Timing, int64, error) {
	names := t.Named()
	if len(names) == 0 && t.Zones() == calendar.InForce() {
		return t, 0, nil
	}
	a, err := ts.HoldCalendars(ctx, tx, tenant, names)
	if err != nil {
		return nil, 0, err
	}
	return ts.Renewed(tenant, t, a)
}

// Present returns the timings of some cohorts of a tenant and shard, by cohort id, with the present calendars. The result has only
// cohorts that name calendars. It lacks a cohort that is gone or whose timing cannot be compiled.
func (ts *Timings) Present(ctx context.Context, db postgres.DB, tenant tenants.ID, shard int16, ids []int64) (map[int64]*calendar.Timing, error) {
	rows, _ := db.Query(ctx, `
		SELECT c.shard, c.id, c.hash, r.revision, c.tzdata
		FROM calendar_revision r
		JOIN cohort c ON c.shard = $2 AND c.id = ANY($3) AND c.tenant_id = r.tenant_id
		WHERE r.tenant_id = $1 AND c.calendars IS NOT NULL`, tenant, shard, ids) // ForEachRow reports the error
	var names []CohortTiming
	name := CohortTiming{Tenant: tenant}
	_, err := pgx.ForEachRow(rows, []any{&name.Shard, &name.ID, &name.Hash, &name.Revision, &name.TZData}, func() error {
		name.Hash = slices.Clone(name.Hash)
		names = append(names, name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read cohorts: %w", err)
	}
	timings, _, err := ts.Of(ctx, db, names)
	if err != nil {
		return nil, err
	}
	present := make(map[int64]*calendar.Timing, len(timings))
	for i, t := range timings {
		if t != nil {
			present[names[i].ID] = t
		}
	}
	return present, nil
}
