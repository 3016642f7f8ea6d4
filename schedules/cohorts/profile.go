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

// subjectZone is the zone of a spec that follows the profile of its subject.
const subjectZone = "@subject"

// FollowsSubject reports whether a spec takes its zone from the profile of its subject.
func FollowsSubject(spec calendar.Spec) bool { return spec.Timezone == subjectZone }

// Profile is the zone and the quiet hours of the schedules that follow a subject. The zero value is that of a subject without one.
type Profile struct {
	Zone  string
	Quiet string // the text of a calendar.Quiet
}

// Context returns the context in which the spec of a schedule of the subject is compiled.
func (p Profile) Context(anchor time.Time, identity string) calendar.Context {
	quiet, err := calendar.ReadQuiet(p.Quiet)
	if err != nil {
		quiet = nil // a newer program wrote it: the ticks are not held back
	}
	return calendar.Context{Created: anchor, Identity: identity, SubjectZone: p.Zone, SubjectQuiet: quiet}
}

// StoredProfile is a profile as queries bring it; all members are nil where there is none.
type StoredProfile struct {
	SubjectZone *string
	QuietHours  *string
}

// Profile returns the profile; the zero value if none is stored.
func (s StoredProfile) Profile() Profile {
	if s.SubjectZone == nil {
		return Profile{}
	}
	p := Profile{Zone: *s.SubjectZone}
	if s.QuietHours != nil {
		p.Quiet = *s.QuietHours
	}
	return p
}

// Stored returns the profile as its columns hold it.
func (p Profile) Stored() (s StoredProfile) {
	if p.Zone == "" {
		return s
	}
	s.SubjectZone = &p.Zone
	if p.Quiet != "" {
		s.QuietHours = &p.Quiet
	}
	return s
}

// ProfileColumns are the columns of a StoredProfile in table subject_profile profile.
const ProfileColumns = `profile.timezone AS subject_zone, profile.quiet_hours`

// ReadProfiles reads the profiles of subjects of a tenant. The result lacks subjects without one.
func ReadProfiles(ctx context.Context, db postgres.DB, tenant tenants.ID, subjects ...string) (map[string]Profile, error) {
	rows, _ := db.Query(ctx, `SELECT subject, `+ProfileColumns+` FROM subject_profile profile WHERE tenant_id = $1 AND subject = ANY($2)`, tenant, subjects) // ForEachRow reports the error
	found := make(map[string]Profile, len(subjects))
	var subject string
	var s StoredProfile
	_, err := pgx.ForEachRow(rows, []any{&subject, &s.SubjectZone, &s.QuietHours}, func() error {
		found[subject] = s.Profile()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read profiles of subjects: %w", err)
	}
	return found, nil
}

// subjectLocks is the class of the advisory locks of subjects. Subjects share so few of them that a batch never holds many.
const (
	subjectLocks  = 0x4341_524b
	subjectShares = 64
)

// These are the modes of a subject's lock. A transaction that makes a schedule follow the subject shares the lock, because a change of the
// profile cannot see that schedule before the commit. A transaction that changes the profile has the lock alone.
const (
	ToFollow = `pg_advisory_xact_lock_shared`
	ToChange = `pg_advisory_xact_lock`
)

// LockSubjects locks subjects until the transaction ends, before any lock of a shard or a row.
func LockSubjects(ctx context.Context, tx pgx.Tx, tenant tenants.ID, lock string, subjects ...string) error {
	if len(subjects) == 0 {
		return nil
	}
	shares := make([]int32, len(subjects))
	for i, subject := range subjects {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%d/%s", tenant, subject)
		shares[i] = int32(mix(h.Sum64()) % subjectShares)
	}
	slices.Sort(shares)
	_, err := tx.Exec(ctx, `SELECT `+lock+`($1, share) FROM unnest($2::int[]) AS s (share)`, subjectLocks, slices.Compact(shares))
	if err != nil {
		return fmt.Errorf("lock subjects: %w", err)
	}
	return nil
}
