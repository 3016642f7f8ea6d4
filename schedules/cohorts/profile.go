package cohorts

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// keyZone is the zone of a spec that follows its key's profile.
const keyZone = "@key"

// FollowsKey reports whether a spec takes its zone from the profile of its key.
func FollowsKey(spec calendar.Spec) bool { return spec.Timezone == keyZone }

// Profile is what a key says of the timings of the schedules that follow it; the zero value is that of a key that says
// nothing.
type Profile struct {
	Zone  string
	Quiet calendar.Quiet
}

// Context is what a spec is compiled with for a schedule of the key.
func (p Profile) Context(anchor time.Time, identity string) calendar.Context {
	return calendar.Context{Created: anchor, Identity: identity, KeyZone: p.Zone, KeyQuiet: p.Quiet}
}

// StoredProfile is a profile as queries bring it; all members are nil where there is none.
type StoredProfile struct {
	KeyZone   *string
	QuietFrom *int32
	QuietTo   *int32
	QuietSkip *bool
}

// Profile returns the profile; the zero value if none is stored.
func (s StoredProfile) Profile() Profile {
	if s.KeyZone == nil {
		return Profile{}
	}
	p := Profile{Zone: *s.KeyZone}
	if s.QuietFrom != nil {
		p.Quiet = calendar.Quiet{From: int(*s.QuietFrom), To: int(*s.QuietTo), Skip: *s.QuietSkip}
	}
	return p
}

// Stored returns the profile as its columns hold it.
func (p Profile) Stored() (s StoredProfile) {
	if p.Zone == "" {
		return s
	}
	s.KeyZone = &p.Zone
	if p.Quiet != (calendar.Quiet{}) {
		s.QuietFrom, s.QuietTo, s.QuietSkip = new(int32(p.Quiet.From)), new(int32(p.Quiet.To)), &p.Quiet.Skip
	}
	return s
}

// ProfileColumns are the columns of a StoredProfile in table key_profile kp.
const ProfileColumns = `kp.timezone AS key_zone, kp.quiet_from, kp.quiet_to, kp.quiet_skip`

// ReadProfiles reads the profiles of a tenant's keys; a key without one is missing.
func ReadProfiles(ctx context.Context, db postgres.DB, tenant tenants.ID, keys ...string) (map[string]Profile, error) {
	rows, _ := db.Query(ctx, `SELECT key, `+ProfileColumns+` FROM key_profile kp WHERE tenant_id = $1 AND key = ANY($2)`, tenant, keys) // ForEachRow reports the error
	found := make(map[string]Profile, len(keys))
	var key string
	var s StoredProfile
	_, err := pgx.ForEachRow(rows, []any{&key, &s.KeyZone, &s.QuietFrom, &s.QuietTo, &s.QuietSkip}, func() error {
		found[key] = s.Profile()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read profiles of keys: %w", err)
	}
	return found, nil
}

// keyLocks is the class of the advisory locks of keys. Keys share so few of them that a batch never holds many.
const (
	keyLocks  = 0x4341_524b
	keyShares = 64
)

// What a transaction that holds the lock of a key does to its profile: who has a schedule begin to follow the key, which
// a change of the profile cannot see before it is committed, and who changes it.
const (
	ToFollow = `pg_advisory_xact_lock_shared`
	ToChange = `pg_advisory_xact_lock`
)

// LockKeys locks keys until the transaction ends, before any lock of a shard or a row.
func LockKeys(ctx context.Context, tx pgx.Tx, tenant tenants.ID, lock string, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	shares := make([]int32, len(keys))
	for i, key := range keys {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%d/%s", tenant, key)
		shares[i] = int32(mix(h.Sum64()) % keyShares)
	}
	slices.Sort(shares)
	_, err := tx.Exec(ctx, `SELECT `+lock+`($1, share) FROM unnest($2::int[]) AS s (share)`, keyLocks, slices.Compact(shares))
	if err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return nil
}
