package cohorts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
)

// subjectZone is the zone of a spec that follows the profile of its subject.
const subjectZone = "@subject"

// FollowsSubject reports whether a spec takes its zone from the profile of its subject.
func FollowsSubject(spec calendar.Spec) bool { return spec.Timezone == subjectZone }

// Profile is the zone and the quiet hours of the schedules that follow a subject. A subject without a profile has the fallback zone of the
// workflow or of the tenant; the zero value is that of one without any zone.
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

// StoredProfile is a profile as queries return it. All members are nil if there is none.
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

// FollowedColumns are the columns of the StoredProfile that schedule s of workflow w follows; profile is the row of its subject, if any.
// The fallback zone of the tenant is only looked up for a schedule that needs it.
const FollowedColumns = `
	CASE WHEN s.by_subject THEN COALESCE(profile.timezone, w.fallback_timezone, (SELECT fallback_timezone FROM tenant WHERE id = s.tenant_id)) END AS subject_zone,
	profile.quiet_hours`

// Follower is a subject and the workflow of a schedule that follows it; empty: the schedule has no workflow yet.
type Follower struct{ Workflow, Subject string }

// ReadProfiles reads what schedules of a tenant follow: the profiles of subjects, else fallback zones. The result lacks those without a
// zone.
func ReadProfiles(ctx context.Context, db postgres.DB, tenant tenants.ID, followers ...Follower) (map[Follower]Profile, error) {
	workflows, subjects := make([]string, len(followers)), make([]string, len(followers))
	for i, f := range followers {
		workflows[i], subjects[i] = f.Workflow, f.Subject
	}
	rows, _ := db.Query(ctx, `
		SELECT f.workflow, f.subject, COALESCE(profile.timezone,
			(SELECT fallback_timezone FROM workflow WHERE tenant_id = $1 AND name = f.workflow),
			(SELECT fallback_timezone FROM tenant WHERE id = $1)), profile.quiet_hours
		FROM unnest($2::text[], $3::text[]) AS f (workflow, subject)
		LEFT JOIN LATERAL (SELECT timezone, quiet_hours FROM subject_profile WHERE tenant_id = $1 AND subject = f.subject OFFSET 0) profile ON true`,
		tenant, workflows, subjects) // ForEachRow reports the error
	found := make(map[Follower]Profile, len(followers))
	var f Follower
	var s StoredProfile
	_, err := pgx.ForEachRow(rows, []any{&f.Workflow, &f.Subject, &s.SubjectZone, &s.QuietHours}, func() error {
		if p := s.Profile(); p.Zone != "" {
			found[f] = p
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read profiles of subjects: %w", err)
	}
	return found, nil
}

// SubjectShares is how many advisory locks subjects have: so few that a batch never holds many.
const SubjectShares = 64

// These are the modes of a subject's lock. A transaction that makes a schedule follow the subject shares the lock, because a change of the
// profile cannot see that schedule before the commit. A transaction that changes the profile has the lock alone.
const (
	ToFollow = `pg_advisory_xact_lock_shared`
	ToChange = `pg_advisory_xact_lock`
)

// WaitForFollowers waits for the transactions that hold one share of the locks of subjects, from 0 to SubjectShares-1. The caller's
// transaction holds the share until it ends.
func WaitForFollowers(ctx context.Context, tx pgx.Tx, share int) error {
	if _, err := tx.Exec(ctx, `SELECT `+ToChange+`($1, $2)`, postgres.SubjectLocks, share); err != nil {
		return fmt.Errorf("wait for schedules that begin to follow a subject: %w", err)
	}
	return nil
}

// LockSubjects locks subjects until the transaction ends, before any lock of a shard or a row.
func LockSubjects(ctx context.Context, tx pgx.Tx, tenant tenants.ID, lock string, subjects ...string) error {
	if len(subjects) == 0 {
		return nil
	}
	shares := make([]int32, len(subjects))
	for i, subject := range subjects {
		shares[i] = int32(uint64(runs.PhaseOf(fmt.Sprintf("%d/%s", tenant, subject))) % SubjectShares)
	}
	slices.Sort(shares)
	_, err := tx.Exec(ctx, `SELECT `+lock+`($1, share) FROM unnest($2::int[]) AS s (share)`, postgres.SubjectLocks, slices.Compact(shares))
	if err != nil {
		return fmt.Errorf("lock subjects: %w", err)
	}
	return nil
}
