package subjects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// writeTimeout is how long a change of a subject may take.
const writeTimeout = 30 * time.Second

// Config is what Subjects need. All members are required.
type Config struct {
	Pool       postgres.DB // it shows only the rows of the tenant that a context names
	Schedules  *schedules.Schedules
	Erasures   *Erasures
	Withdraw   Withdraw
	Operations *operations.Operations
	Quotas     func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	Cursors    *web.Cursor
}

// Subjects reads, renames, cancels and erases subjects over all workflows. It is safe for concurrent use.
type Subjects struct {
	*Erasures
	pool       postgres.DB
	schedules  *schedules.Schedules
	withdraw   Withdraw
	operations *operations.Operations
	quotas     func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	cursors    *web.Cursor
}

// New returns Subjects over a pool whose database is migrated.
func New(c Config) *Subjects {
	ss := &Subjects{Erasures: c.Erasures, pool: c.Pool, schedules: c.Schedules, withdraw: c.Withdraw, operations: c.Operations, quotas: c.Quotas, cursors: c.Cursors}
	c.Operations.Register(cancelKind, ss.cancelStep)
	return ss
}

// SubjectParams are the body of a profile's upsert. Without quiet hours there are none.
type SubjectParams struct {
	Timezone   string            `json:"timezone"`
	QuietHours QuietWindows      `json:"quiet_hours,omitempty" null:"yes"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// Subject is the profile of a subject over all workflows: what schedules whose zone is @subject are timed by.
type Subject struct {
	Subject    string            `json:"subject"`
	Timezone   string            `json:"timezone"`
	QuietHours QuietWindows      `json:"quiet_hours"`
	Labels     map[string]string `json:"labels"`
	Version    int32             `json:"version"`
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
	UpdatedBy  string            `json:"updated_by"`
}

// SubjectRetiming is a profile that many schedules follow, and the operation that retimes them.
type SubjectRetiming struct {
	Subject
	Operation operations.Answer `json:"operation"`
}

// wanted is a profile as it is to be stored.
type wanted struct {
	cohorts.Profile
	labels map[string]string
}

// read checks a profile; faults of all its members are joined.
func (p SubjectParams) read() (want wanted, err error) {
	want.Zone, want.labels = p.Timezone, p.Labels
	if want.labels == nil {
		want.labels = map[string]string{}
	}
	errs := []error{schedules.CheckLabels(p.Labels)}
	switch {
	case p.Timezone == "":
		errs = append(errs, fault.Invalid("/timezone", "a profile names the time zone of its subject"))
	case cohorts.FollowsSubject(calendar.Spec{Timezone: p.Timezone}):
		errs = append(errs, fault.Invalid("/timezone", "@subject follows the profile: name a zone such as Europe/Berlin"))
	default:
		errs = append(errs, schedules.CheckZone("/timezone", p.Timezone))
	}
	windows, err := p.QuietHours.read()
	want.Quiet = windows.String()
	return want, fault.Join(append(errs, err)...)
}

// storedSubject is a row of subject_profile.
type storedSubject struct {
	Subject string
	cohorts.StoredProfile
	Labels    map[string]string
	Version   int32
	CreatedAt time.Time
	UpdatedAt time.Time
	UpdatedBy string
}

const subjectColumns = `profile.subject, ` + cohorts.ProfileColumns + `, profile.labels, profile.version, profile.created_at, profile.updated_at, profile.updated_by`

func (s *storedSubject) shown() (Subject, error) {
	k := Subject{
		Subject: s.Subject, Timezone: *s.SubjectZone, Labels: s.Labels, Version: s.Version,
		CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(), UpdatedBy: s.UpdatedBy,
	}
	windows, err := calendar.ReadQuiet(s.Profile().Quiet)
	if err != nil {
		return k, fmt.Errorf("read the quiet hours of a subject: %w", err)
	}
	for _, w := range windows {
		k.QuietHours = append(k.QuietHours, shownWindow(w))
	}
	return k, nil
}

// readSubject is the stored profile of a subject; nil where there is none.
func readSubject(ctx context.Context, db postgres.DB, tenant tenants.ID, subject string) (*storedSubject, error) {
	rows, _ := db.Query(ctx, `SELECT `+subjectColumns+` FROM subject_profile profile WHERE tenant_id = $1 AND subject = $2`, tenant, subject) // CollectExactlyOneRow reports the error
	k, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[storedSubject])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the profile of a subject: %w", err)
	}
	return k, nil
}

// Subject returns the profile of a subject.
func (ss *Subjects) Subject(ctx context.Context, tenant tenants.ID, subject string) (Subject, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	k, err := readSubject(ctx, ss.pool, tenant, subject)
	if err != nil {
		return Subject{}, err
	}
	if k == nil {
		return Subject{}, fault.NotFound("subject %q has no profile", subject)
	}
	return k.shown()
}

// PutSubject stores the profile of a subject, and retimes the schedules that follow it in the same transaction. If they are many, it
// begins an operation that retimes them, and returns it. made reports that there was no profile. A profile that is stored already
// is not written again.
func (ss *Subjects) PutSubject(ctx context.Context, tenant tenants.ID, subject string, p SubjectParams, by string, pre version.Precondition) (k Subject, made bool, op *operations.Answer, err error) {
	want, err := p.read()
	if err := fault.Join(policy.CheckSubject("/subject", subject), err); err != nil {
		return k, false, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = postgres.Retry(ctx, func() error {
		op = nil
		return pgx.BeginFunc(ctx, ss.pool, func(tx pgx.Tx) error {
			if err := cohorts.LockSubjects(ctx, tx, tenant, cohorts.ToChange, subject); err != nil {
				return err
			}
			was, err := readSubject(ctx, tx, tenant, subject)
			if err != nil {
				return err
			}
			version := int64(0)
			if was != nil {
				version = int64(was.Version)
			}
			if err := pre.Check(was != nil, version); err != nil {
				return err
			}
			if was == nil {
				if err := ss.roomForSubject(ctx, tx, tenant); err != nil {
					return err
				}
			}
			if was != nil && was.Profile() == want.Profile && maps.Equal(was.Labels, want.labels) {
				k, err = was.shown()
				made = false
				return err
			}
			if k, err = writeSubject(ctx, tx, tenant, subject, want, by); err != nil {
				return err
			}
			made = was == nil
			change := tenants.Change{Action: "subject.put", Target: "subjects/" + url.PathEscape(subject), Subject: subject, After: k}
			if !made {
				if change.Before, err = was.shown(); err != nil {
					return err
				}
			}
			if err := tenants.Audit(ctx, tx, tenant, by, change); err != nil {
				return err
			}
			if was != nil && was.Profile() == want.Profile {
				return nil
			}
			op, err = ss.schedules.RetimeSubject(ctx, tx, tenant, k.Subject, k.Timezone, by)
			return err
		})
	})
	return k, made, op, err
}

// roomForSubject returns a fault if the tenant has as many profiles as the quota subjects allows. Two transactions at once may make one
// too many.
func (ss *Subjects) roomForSubject(ctx context.Context, tx pgx.Tx, tenant tenants.ID) error {
	q, err := ss.quotas(ctx, tenant)
	if err != nil {
		return err
	}
	n, err := forecast.Count(ctx, tx, tenant, forecast.AllSubjects)
	if err == nil && n >= q.Subjects {
		return tenants.Exceeded("subjects", q.Subjects, n)
	}
	return err
}

func writeSubject(ctx context.Context, tx pgx.Tx, tenant tenants.ID, subject string, p wanted, by string) (Subject, error) {
	rows, _ := tx.Query(ctx, `
		INSERT INTO subject_profile AS profile (tenant_id, subject, timezone, quiet_hours, labels, created_at, updated_at, updated_by)
		VALUES ($1, $2, $3, $4, $5, `+postgres.TxNow+`, `+postgres.TxNow+`, $6)
		ON CONFLICT (tenant_id, subject) DO UPDATE
		SET timezone = excluded.timezone, quiet_hours = excluded.quiet_hours, labels = excluded.labels,
			version = profile.version + 1, updated_at = excluded.updated_at, updated_by = excluded.updated_by
		RETURNING `+subjectColumns, tenant, subject, p.Zone, p.Stored().QuietHours, p.labels, by) // CollectExactlyOneRow reports the error
	stored, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[storedSubject])
	if err != nil {
		return Subject{}, fmt.Errorf("write the profile of a subject: %w", err)
	}
	return stored.shown()
}

// List returns a page of the profiles of a tenant's subjects that begin with a prefix, by subject, and the cursor of the next
// page, if there is one.
func (ss *Subjects) List(ctx context.Context, tenant tenants.ID, prefix string, limit int, cursor string) (page []Subject, next *string, err error) {
	if prefix != "" {
		if err := policy.CheckSubject("/subject_prefix", prefix); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	name := fmt.Sprintf("subjects %q", prefix)
	after := ""
	paging, err := ss.cursors.Page(int32(tenant), name, limit, cursor, &after)
	if err != nil {
		return nil, nil, err
	}
	args := []any{tenant, after, prefix, paging.Rows()}
	below := ""
	if past := schedules.PastPrefix(prefix); past != "" {
		below, args = "AND subject < $5", append(args, past)
	}
	rows, _ := ss.pool.Query(ctx, `
		SELECT `+subjectColumns+`
		FROM subject_profile profile
		WHERE tenant_id = $1 AND subject > $2 AND subject >= $3 `+below+`
		ORDER BY subject
		LIMIT $4`, args...) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[storedSubject])
	if err != nil {
		return nil, nil, fmt.Errorf("list subjects: %w", err)
	}
	found, next, err = web.Cut(paging, found, false, func(k *storedSubject) string { return k.Subject })
	page = make([]Subject, 0, len(found))
	for _, k := range found {
		shown, err := k.shown()
		if err != nil {
			return nil, nil, err
		}
		page = append(page, shown)
	}
	return page, next, err
}
