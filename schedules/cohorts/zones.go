package cohorts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
)

// archives are the versions of the tz database that were read because a cohort is timed by them.
type archives struct {
	mu      sync.Mutex
	known   map[string]*calendar.Zones
	lost    map[string]bool               // versions whose archive cannot be read
	changed map[[2]string]map[string]bool // zones that differ from an earlier version to a later one
}

func (a *archives) of(version string) *calendar.Zones {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[version]
}

func (a *archives) add(z *calendar.Zones) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[string]*calendar.Zones{}
	}
	a.known[z.Version()] = z
}

// lose notes that the archive of a version cannot be read.
func (a *archives) lose(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost == nil {
		a.lost = map[string]bool{}
	}
	a.lost[version] = true
}

// isLost reports whether the archive of a version could not be read.
func (a *archives) isLost(version string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost[version]
}

// zones returns a version of the tz database: the one in force, the program's own, or one that another process has stored. If a version
// is not stored or cannot be read, zones returns the one in force, so that the cohorts of that version do not stop the others.
func (ts *Timings) zones(ctx context.Context, db postgres.DB, version string) (*calendar.Zones, error) {
	if version == "" || ts.archives.isLost(version) {
		return calendar.InForce(), nil
	}
	for _, z := range []*calendar.Zones{calendar.InForce(), calendar.Embedded(), ts.archives.of(version)} {
		if z != nil && z.Version() == version {
			return z, nil
		}
	}
	var archive []byte
	err := db.QueryRow(ctx, `SELECT archive FROM tzdata WHERE version = $1`, version).Scan(&archive)
	if errors.Is(err, pgx.ErrNoRows) {
		return calendar.InForce(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read tzdata %s: %w", version, err)
	}
	z, err := calendar.ReadZones(bytes.NewReader(archive))
	if err != nil {
		ts.archives.lose(version)
		return calendar.InForce(), nil
	}
	ts.archives.add(z)
	return z, nil
}

// lasts reports whether a cohort's timing stays the same while the present tz database is in force. It does if it names no calendar, and
// its zone is the same in the database by which it is timed.
func (ts *Timings) lasts(ctx context.Context, db postgres.DB, c CohortTiming, t *calendar.Timing) (bool, error) {
	present := calendar.InForce()
	if c.Revision != 0 {
		return false, nil
	}
	if c.TZData == "" || c.TZData == present.Version() {
		return true, nil
	}
	versions := [2]string{c.TZData, present.Version()}
	ts.archives.mu.Lock()
	changed, known := ts.archives.changed[versions]
	ts.archives.mu.Unlock()
	if !known {
		names, err := ts.Changed(ctx, db, c.TZData, present, time.Now())
		if err != nil {
			return false, err
		}
		changed = make(map[string]bool, len(names))
		for _, name := range names {
			changed[name] = true
		}
		ts.archives.mu.Lock()
		if ts.archives.changed == nil {
			ts.archives.changed = map[[2]string]map[string]bool{}
		}
		ts.archives.changed[versions] = changed
		ts.archives.mu.Unlock()
	}
	return !changed[t.Zone()], nil
}

// Changed returns the zones whose clocks differ, from a moment on, between an
// earlier version and another. It leaves out the zones that the other version lacks.
func (ts *Timings) Changed(ctx context.Context, db postgres.DB, old string, to *calendar.Zones, since time.Time) ([]string, error) {
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
