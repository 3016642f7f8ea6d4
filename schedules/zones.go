package schedules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
)

// archives are the versions of the tz database that were read because a cohort is timed by them.
type archives struct {
	mu    sync.Mutex
	known map[string]*calendar.Zones
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

// zones is a version of the tz database: the one in force, the program's own, or one that another process has stored. One
// that is not known, or is nowhere, is stood for by the one in force.
func (ts *Timings) zones(ctx context.Context, db postgres.DB, version string) (*calendar.Zones, error) {
	if version == "" {
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
		return nil, fmt.Errorf("tzdata %s: %w", version, err)
	}
	ts.archives.add(z)
	return z, nil
}
