package subjects

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// RenameParams have the new name of a subject.
type RenameParams struct {
	To string `json:"to"`
}

// Renamed has what a rename moved.
type Renamed struct {
	Subject   string `json:"subject"`
	Schedules int    `json:"schedules"`
	Profile   bool   `json:"profile"`
}

// Rename gives a subject another name. Its schedules in all workflows, their history, that of deleted schedules, and its profile move to
// the new name. Keys stay, and so do all times. A name that has a profile or schedules is a conflict, 409.
func (ss *Subjects) Rename(ctx context.Context, tenant tenants.ID, subject string, p RenameParams, request once.Request) (out Renamed, replayed bool, err error) {
	if err := fault.Join(policy.CheckSubject("/subject", subject), policy.CheckSubject("/to", p.To)); err != nil {
		return out, false, err
	}
	if p.To == subject {
		return out, false, fault.Invalid("/to", "the new name equals the present name")
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, ss.pool, func(tx pgx.Tx) error {
			if err := cohorts.LockSubjects(ctx, tx, tenant, cohorts.ToChange, subject, p.To); err != nil {
				return err
			}
			out, replayed, err = once.Do(ctx, tx, int32(tenant), request, func() (Renamed, error) {
				return rename(ctx, tx, tenant, subject, p.To)
			})
			return err
		})
	})
	return out, replayed, err
}

func rename(ctx context.Context, tx pgx.Tx, tenant tenants.ID, subject, to string) (out Renamed, err error) {
	from, err := find(ctx, tx, tenant, subject)
	if err != nil {
		return out, err
	}
	there, err := find(ctx, tx, tenant, to)
	if err != nil {
		return out, err
	}
	if len(there.live) > 0 {
		return out, fault.Conflict("subject_in_use", "workflow %q has a schedule of subject %q already", there.live[0].Workflow, to)
	}
	profile, err := readSubject(ctx, tx, tenant, subject)
	if err != nil {
		return out, err
	}
	taken, err := readSubject(ctx, tx, tenant, to)
	if err != nil {
		return out, err
	}
	if taken != nil {
		return out, fault.Conflict("subject_in_use", "subject %q has a profile already", to)
	}
	moves := profile != nil
	if !moves && len(from.live)+len(from.deleted) == 0 {
		return out, fault.NotFound("subject %q has no profile and no schedules", subject)
	}
	ids := from.ids()
	var b pgx.Batch
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`, tenant, ids)
	b.Queue(`UPDATE subject_profile SET subject = $3 WHERE tenant_id = $1 AND subject = $2`, tenant, subject, to)
	b.Queue(`UPDATE schedule SET subject = NULLIF($3, key) WHERE tenant_id = $1 AND id = ANY($2)`, tenant, ids, to)
	b.Queue(`UPDATE revision SET subject = NULLIF($3, key) WHERE tenant_id = $1 AND subject = $2`, tenant, subject, to)
	b.Queue(`UPDATE revision SET subject = $3 WHERE tenant_id = $1 AND schedule_id = ANY($4) AND key = $2 AND subject IS NULL`, tenant, subject, to, from.all())
	b.Queue(`UPDATE dead_letter SET subject = NULLIF($3, key) WHERE tenant_id = $1 AND subject = $2`, tenant, subject, to)
	b.Queue(`UPDATE dead_letter SET subject = $3 WHERE tenant_id = $1 AND key = $2 AND subject IS NULL`, tenant, subject, to)
	b.Queue(`UPDATE operation SET subject = $3 WHERE tenant_id = $1 AND subject = $2`, tenant, subject, to)
	b.Queue(`UPDATE audit SET subject = $3 WHERE tenant_id = $1 AND subject = $2`, tenant, subject, to) // so that it is erased with the subject
	err = tenants.QueueAudit(ctx, &b, tenant, "", tenants.Change{
		Action: "subject.rename", Target: "subjects/" + url.PathEscape(subject), Subject: to, After: map[string]any{"to": to, "schedules": len(ids), "profile": moves},
	})
	if err != nil {
		return out, err
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return out, fmt.Errorf("rename a subject: %w", err)
	}
	return Renamed{Subject: to, Schedules: len(ids), Profile: moves}, nil
}
