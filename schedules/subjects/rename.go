package subjects

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// RenameParams say what a key is called from now on.
type RenameParams struct {
	To string `json:"to"`
}

// Renamed tells what a rename has moved.
type Renamed struct {
	Key       string `json:"key"`
	Schedules int    `json:"schedules"`
	Profile   bool   `json:"profile"`
}

// Rename gives a key another name: its schedules in all workflows, their history, that of deleted ones, and its profile
// move. No time does: hashes go on as if the key had its first name.
func (ss *Subjects) Rename(ctx context.Context, tenant tenants.ID, key string, p RenameParams, request once.Request) (out Renamed, replayed bool, err error) {
	if err := fault.Join(policy.CheckKey("/key", key), policy.CheckKey("/to", p.To)); err != nil {
		return out, false, err
	}
	if p.To == key {
		return out, false, fault.Invalid("/to", "the key is called that already")
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, ss.pool, func(tx pgx.Tx) error {
			if err := cohorts.LockKeys(ctx, tx, tenant, cohorts.ToChange, key, p.To); err != nil {
				return err
			}
			out, replayed, err = once.Do(ctx, tx, int32(tenant), request, func() (Renamed, error) {
				return rename(ctx, tx, tenant, key, p.To)
			})
			return err
		})
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.ConstraintName == "schedule_workflow_key" {
		return out, false, fault.Conflict("key_in_use", "a workflow has a schedule of key %q already", p.To)
	}
	return out, replayed, err
}

func rename(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key, to string) (out Renamed, err error) {
	from, err := findKey(ctx, tx, tenant, key)
	if err != nil {
		return out, err
	}
	there, err := findKey(ctx, tx, tenant, to)
	if err != nil {
		return out, err
	}
	for _, one := range from.live {
		if slices.ContainsFunc(there.live, func(s keyedSchedule) bool { return s.Workflow == one.Workflow }) {
			return out, fault.Conflict("key_in_use", "workflow %q has a schedule of key %q already", one.Workflow, to)
		}
	}
	profiles, err := cohorts.ReadProfiles(ctx, tx, tenant, key, to)
	if err != nil {
		return out, err
	}
	_, moves := profiles[key]
	if _, taken := profiles[to]; moves && taken {
		return out, fault.Conflict("profile_in_use", "key %q has a profile already", to)
	}
	if !moves && len(from.live)+len(from.deleted) == 0 {
		return out, fault.NotFound("there is nothing of key %q", key)
	}
	ids := from.ids()
	var b pgx.Batch
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`, tenant, ids)
	b.Queue(`UPDATE key_profile SET key = $3 WHERE tenant_id = $1 AND key = $2`, tenant, key, to)
	b.Queue(`UPDATE dead_letter SET key = $3 WHERE tenant_id = $1 AND key = $2`, tenant, key, to)
	b.Queue(`
		UPDATE schedule
		SET key = $3, hashed_as = NULLIF(COALESCE(hashed_as, key), $3)
		WHERE tenant_id = $1 AND id = ANY($2)`, tenant, ids, to)
	b.Queue(`
		UPDATE revision
		SET key = $3, hashed_as = NULLIF(COALESCE(hashed_as, key), $3)
		WHERE tenant_id = $1 AND schedule_id = ANY($2)`, tenant, from.all(), to)
	b.Queue(`UPDATE operation SET key = $3 WHERE tenant_id = $1 AND key = $2`, tenant, key, to)
	b.Queue(`UPDATE audit SET key = $3 WHERE tenant_id = $1 AND key = $2`, tenant, key, to) // so that it is erased with the key
	err = tenants.QueueAudit(ctx, &b, tenant, "", tenants.Change{
		Action: "key.rename", Target: "keys/" + url.PathEscape(key), Key: to, After: map[string]any{"to": to, "schedules": len(ids), "profile": moves},
	})
	if err != nil {
		return out, err
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return out, fmt.Errorf("rename a key: %w", err)
	}
	return Renamed{Key: to, Schedules: len(ids), Profile: moves}, nil
}
