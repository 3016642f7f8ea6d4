package subjects

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Item is a profile that is stored with others. PutAll sets Result, and Fault if that is schedules.Failed.
type Item struct {
	Subject string
	want    wanted

	Result string
	Fault  *fault.Error
}

// Valid reports whether a text can be the name of a subject.
func Valid(subject string) bool { return policy.CheckSubject("", subject) == nil }

// Read checks a profile of a subject.
func Read(subject string, p SubjectParams) (*Item, error) {
	want, err := p.read()
	if err := fault.Join(policy.CheckSubject("/subject", subject), err); err != nil {
		return nil, err
	}
	return &Item{Subject: subject, want: want}, nil
}

// PutAll stores profiles of different subjects in one transaction, each as PutSubject does. The caller records the change in the audit.
func (ss *Subjects) PutAll(ctx context.Context, tenant tenants.ID, by string, items []*Item) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.Subject
	}
	return postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, ss.pool, func(tx pgx.Tx) error {
			if err := cohorts.LockSubjects(ctx, tx, tenant, cohorts.ToChange, names...); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, `SELECT `+subjectColumns+` FROM subject_profile profile WHERE tenant_id = $1 AND subject = ANY($2)`, tenant, names) // CollectRows reports the error
			found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[storedSubject])
			if err != nil {
				return fmt.Errorf("read the profiles of subjects: %w", err)
			}
			stored := make(map[string]*storedSubject, len(found))
			for _, one := range found {
				stored[one.Subject] = one
			}
			changed, err := ss.decide(ctx, tx, tenant, items, stored)
			if err != nil {
				return err
			}
			if err := writeAll(ctx, tx, tenant, changed, by); err != nil {
				return err
			}
			return ss.retimeAll(ctx, tx, tenant, changed, stored, by)
		})
	})
}

// decide sets the results of items, and returns those to write. The quota refuses the last new ones.
func (ss *Subjects) decide(ctx context.Context, tx pgx.Tx, tenant tenants.ID, items []*Item, stored map[string]*storedSubject) (changed []*Item, err error) {
	quotas, err := ss.quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	n, err := forecast.Count(ctx, tx, tenant, forecast.AllSubjects)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		it.Fault = nil
		was := stored[it.Subject]
		switch {
		case was != nil && was.Profile() == it.want.Profile && maps.Equal(was.Labels, it.want.labels):
			it.Result = schedules.Unchanged
			continue
		case was != nil:
			it.Result = schedules.Updated
		case n >= quotas.Subjects:
			it.Result, it.Fault = schedules.Failed, tenants.Exceeded("subjects", quotas.Subjects, n)
			continue
		default:
			it.Result = schedules.Inserted
			n++
		}
		changed = append(changed, it)
	}
	return changed, nil
}

func writeAll(ctx context.Context, tx pgx.Tx, tenant tenants.ID, items []*Item, by string) error {
	if len(items) == 0 {
		return nil
	}
	var names, zones, labels []string
	var quiet []*string
	for _, it := range items {
		text, err := json.Marshal(it.want.labels)
		if err != nil {
			return fmt.Errorf("write labels: %w", err)
		}
		names, zones, labels, quiet = append(names, it.Subject), append(zones, it.want.Zone), append(labels, string(text)), append(quiet, it.want.Stored().QuietHours)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO subject_profile AS profile (tenant_id, subject, timezone, quiet_hours, labels, created_at, updated_at, updated_by)
		SELECT $1, subject, timezone, quiet_hours, labels::jsonb, `+postgres.TxNow+`, `+postgres.TxNow+`, $6
		FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS n (subject, timezone, quiet_hours, labels)
		ORDER BY subject
		ON CONFLICT (tenant_id, subject) DO UPDATE
		SET timezone = excluded.timezone, quiet_hours = excluded.quiet_hours, labels = excluded.labels,
			version = profile.version + 1, updated_at = excluded.updated_at, updated_by = excluded.updated_by`,
		tenant, names, zones, quiet, labels, by)
	if err != nil {
		return fmt.Errorf("write the profiles of subjects: %w", err)
	}
	return nil
}

// retimeAll retimes the schedules that follow changed profiles.
func (ss *Subjects) retimeAll(ctx context.Context, tx pgx.Tx, tenant tenants.ID, changed []*Item, stored map[string]*storedSubject, by string) error {
	zones := map[string]string{}
	for _, it := range changed {
		if was := stored[it.Subject]; was == nil || was.Profile() != it.want.Profile {
			zones[it.Subject] = it.want.Zone
		}
	}
	if len(zones) == 0 {
		return nil
	}
	rows, _ := tx.Query(ctx, `
		SELECT n.subject
		FROM unnest($2::text[]) AS n (subject)
		WHERE EXISTS (SELECT FROM schedule s WHERE s.tenant_id = $1 AND CASE WHEN s.subject IS NULL THEN s.key ELSE s.subject END = n.subject AND s.by_subject OFFSET 0)
		ORDER BY n.subject`, tenant, slices.Sorted(maps.Keys(zones))) // CollectRows reports the error
	followed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for followers of subjects: %w", err)
	}
	for _, subject := range followed {
		if _, err := ss.schedules.RetimeSubject(ctx, tx, tenant, subject, zones[subject], by); err != nil {
			return err
		}
	}
	return nil
}

const exportedSubjects = 500 // at once

// Export calls write with the profiles of a tenant's subjects in order, some at a time, each as a line of a bulk upsert.
func (ss *Subjects) Export(ctx context.Context, tenant tenants.ID, write func(lines [][]byte) error) error {
	after := ""
	for {
		found, err := ss.after(ctx, tenant, after)
		if err != nil {
			return err
		}
		lines := make([][]byte, len(found))
		for i, one := range found {
			shown, err := one.shown()
			if err != nil {
				return err
			}
			lines[i], err = web.Marshal(struct {
				Subject string `json:"subject"`
				SubjectParams
			}{shown.Subject, SubjectParams{Timezone: shown.Timezone, QuietHours: shown.QuietHours, Labels: shown.Labels}})
			if err != nil {
				return fmt.Errorf("write the profile of a subject: %w", err)
			}
		}
		if err := write(lines); err != nil || len(found) < exportedSubjects {
			return err
		}
		if err := tenants.CheckAuthority(ctx); err != nil {
			return err
		}
		after = found[len(found)-1].Subject
	}
}

func (ss *Subjects) after(ctx context.Context, tenant tenants.ID, subject string) ([]*storedSubject, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	rows, _ := ss.pool.Query(ctx, `
		SELECT `+subjectColumns+`
		FROM subject_profile profile
		WHERE tenant_id = $1 AND subject > $2
		ORDER BY subject
		LIMIT $3`, tenant, subject, exportedSubjects) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[storedSubject])
	if err != nil {
		return nil, fmt.Errorf("export subjects: %w", err)
	}
	return found, nil
}
