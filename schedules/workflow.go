package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// WorkflowParams are the body of a workflow's upsert. Without an endpoint its ticks are pulled.
type WorkflowParams struct {
	Endpoint   *string          `json:"endpoint,omitempty" null:"yes"`
	Version    *string          `json:"version,omitempty" null:"yes"`
	MaxRunning *int32           `json:"max_running,omitempty" null:"yes"`
	Rate       *policy.Rate     `json:"rate,omitempty" null:"yes"`
	Expect     *policy.Expect   `json:"expect,omitempty" null:"yes"`
	State      string           `json:"state,omitempty"` // active or held; omitted: unchanged
	Fallback   *string          `json:"fallback_timezone,omitempty" null:"yes"`
	Defaults   *policy.Defaults `json:"defaults,omitempty"`

	Pre  version.Precondition `json:"-"`
	most int                  // the quota of workflows
}

// Workflow says how the ticks of its schedules are delivered, and what they inherit.
type Workflow struct {
	Name       string          `json:"name"`
	Endpoint   *string         `json:"endpoint"`
	Version    *string         `json:"version"`
	MaxRunning *int32          `json:"max_running"`
	Rate       *policy.Rate    `json:"rate,omitempty"`    // nil: no limit
	Expect     *policy.Expect  `json:"expect,omitempty"`  // nil: nothing is expected
	State      string          `json:"state"`             // active or held
	Fallback   *string         `json:"fallback_timezone"` // the zone of subjects without a profile; null: that of the tenant
	Defaults   policy.Defaults `json:"defaults"`
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
}

// revision is the version that a workflow's entity tag names: the microsecond of its last change.
func (w Workflow) revision() int64 { return w.UpdatedAt.UnixMicro() }

const workflowColumns = `name, endpoint, version, max_running, rate, ramp_s, expect_handed_s, expect_ended_s, CASE WHEN held_at IS NULL THEN 'active' ELSE 'held' END, fallback_timezone, defaults, created_at, updated_at`

func scanWorkflow(row pgx.CollectableRow) (w Workflow, err error) {
	var defaults []byte
	var rate, ramp, handed, ended *int32
	if err := row.Scan(&w.Name, &w.Endpoint, &w.Version, &w.MaxRunning, &rate, &ramp, &handed, &ended, &w.State, &w.Fallback, &defaults, &w.CreatedAt, &w.UpdatedAt); err != nil {
		return w, err
	}
	w.Rate, w.Expect = policy.RateOf(rate, ramp), policy.ExpectOf(handed, ended)
	w.CreatedAt, w.UpdatedAt = w.CreatedAt.UTC(), w.UpdatedAt.UTC()
	if err := json.Unmarshal(defaults, &w.Defaults); err != nil {
		return w, fmt.Errorf("defaults of workflow %q: %w", w.Name, err)
	}
	return w, nil
}

// PutWorkflow creates or replaces a workflow. made reports that it is new.
func (s *Schedules) PutWorkflow(ctx context.Context, tenant tenants.ID, name string, p WorkflowParams) (w Workflow, made bool, err error) {
	return s.storeWorkflow(ctx, tenant, name, func(context.Context, pgx.Tx) (WorkflowParams, error) { return p, nil })
}

// PatchWorkflow applies a merge patch to the params of a workflow.
func (s *Schedules) PatchWorkflow(ctx context.Context, tenant tenants.ID, name string, patch []byte, pre version.Precondition) (Workflow, error) {
	w, _, err := s.storeWorkflow(ctx, tenant, name, func(ctx context.Context, tx pgx.Tx) (p WorkflowParams, err error) {
		before, exists, err := presentWorkflow(ctx, tx, tenant, name)
		if err == nil && !exists {
			err = noWorkflow(name)
		}
		if err != nil {
			return p, err
		}
		stored := WorkflowParams{Endpoint: before.Endpoint, Version: before.Version, MaxRunning: before.MaxRunning, Rate: before.Rate, Expect: before.Expect, State: before.State, Fallback: before.Fallback, Defaults: &before.Defaults}
		p, err = web.Merged[WorkflowParams, WorkflowParams](stored, patch)
		p.Pre = pre
		return p, err
	})
	return w, err
}

// storeWorkflow stores the params that asked returns. The workflow is locked when asked is called.
func (s *Schedules) storeWorkflow(ctx context.Context, tenant tenants.ID, name string, asked func(ctx context.Context, tx pgx.Tx) (WorkflowParams, error)) (w Workflow, made bool, err error) {
	quotas, err := s.Quotas(ctx, tenant)
	if err != nil {
		return w, false, err
	}
	var p WorkflowParams
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		was, err := lockDefaults(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		if p, err = asked(ctx, tx); err != nil {
			return err
		}
		if p.Defaults == nil {
			p.Defaults = &policy.Defaults{}
		}
		if err := p.check(name, quotas); err != nil {
			return err
		}
		defaults, err := json.Marshal(p.Defaults)
		if err != nil {
			return fmt.Errorf("write defaults: %w", err)
		}
		p.most = quotas.Workflows
		if w, made, err = p.put(ctx, tx, tenant, name, defaults); err != nil {
			return err
		}
		if err := s.inherit(ctx, tx, tenant, name, was.defaults, defaults); err != nil {
			return err
		}
		return s.fallBack(ctx, tx, tenant, name, was.fallback, w.Fallback)
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.ConstraintName == "workflow_endpoint" {
		return w, false, fault.Fields(fault.Field{Pointer: "/endpoint", Code: "no_endpoint", Detail: fmt.Sprintf("there is no endpoint %q", *p.Endpoint)})
	}
	return w, made, err
}

// check returns all that is wrong with the params of the workflow of a name.
func (p WorkflowParams) check(name string, quotas tenants.Quotas) error {
	errs := []error{policy.CheckName("/workflow", "workflow", name)}
	terms, err := policy.ReadTerms("/defaults", p.Defaults.Policy, p.Defaults.Delivery)
	errs = append(errs, err, terms.Keepable("/defaults", quotas))
	if p.MaxRunning != nil && *p.MaxRunning < 1 {
		errs = append(errs, fault.Invalid("/max_running", "%d is less than 1: leave it out for no limit", *p.MaxRunning))
	}
	errs = append(errs, p.Rate.Check("/rate"), p.Expect.Check("/expect"))
	if p.Version != nil && (len(*p.Version) == 0 || len(*p.Version) > 128) {
		errs = append(errs, fault.Invalid("/version", "a version is 1 to 128 bytes"))
	}
	if p.Endpoint != nil {
		errs = append(errs, policy.CheckName("/endpoint", "endpoint", *p.Endpoint))
	}
	if p.State != "" && p.State != workflowActive && p.State != workflowHeld {
		errs = append(errs, fault.Invalid("/state", "%q is not one of active, held", p.State))
	}
	if p.Fallback != nil {
		errs = append(errs, CheckZone("/fallback_timezone", *p.Fallback))
	}
	return fault.Join(errs...)
}

// put writes the workflow of a name, and the audit of that.
func (p WorkflowParams) put(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string, defaults []byte) (w Workflow, made bool, err error) {
	change := tenants.Change{Action: "workflow.put", Target: "workflows/" + name}
	before, exists, err := presentWorkflow(ctx, tx, tenant, name)
	if err != nil {
		return w, false, err
	}
	if err := p.Pre.Check(exists, before.revision()); err != nil {
		return w, false, err
	}
	if exists {
		change.Before = before
	} else if err := roomForWorkflow(ctx, tx, tenant, p.most); err != nil {
		return w, false, err
	}
	rate, ramp := p.Rate.Stored()
	handed, ended := p.Expect.Stored()
	rows, _ := tx.Query(ctx, `
		INSERT INTO workflow (tenant_id, name, endpoint, version, max_running, defaults, fallback_timezone, held_at, rate, ramp_s, expect_handed_s, expect_ended_s)
		VALUES ($1, $2, $3, $4, $5, $6, $8, CASE WHEN $9 = 'held' THEN `+postgres.Now+` END, $10, $11, $12, $13)
		ON CONFLICT (tenant_id, name) DO UPDATE
		SET endpoint = excluded.endpoint, version = excluded.version, max_running = excluded.max_running,
			rate = excluded.rate, ramp_s = excluded.ramp_s, expect_handed_s = excluded.expect_handed_s, expect_ended_s = excluded.expect_ended_s,
			defaults = excluded.defaults, fallback_timezone = excluded.fallback_timezone,
			held_at = CASE $9 WHEN '' THEN workflow.held_at WHEN 'held' THEN COALESCE(workflow.held_at, excluded.held_at) END, updated_at = `+postgres.Now+`,
			past_versions = CASE WHEN workflow.version IS NOT DISTINCT FROM excluded.version THEN workflow.past_versions ELSE (
				SELECT jsonb_agg(kept.past ORDER BY kept.n)
				FROM (
					SELECT past, n
					FROM jsonb_array_elements(COALESCE(workflow.past_versions, '[]') || jsonb_build_array(jsonb_build_object(
						'v', workflow.version, 'u', (extract(epoch FROM `+postgres.Now+`) * 1000000)::bigint))) WITH ORDINALITY AS all_past (past, n)
					ORDER BY n DESC
					LIMIT $7) kept) END
		RETURNING `+workflowColumns, tenant, name, p.Endpoint, p.Version, p.MaxRunning, defaults, mostPastVersions, p.Fallback, p.State, rate, ramp, handed, ended) // CollectExactlyOneRow reports the error
	if w, err = pgx.CollectExactlyOneRow(rows, scanWorkflow); err != nil {
		return w, false, err
	}
	if made = w.CreatedAt.Equal(w.UpdatedAt); !exists && !made { // its first schedule registered it meanwhile
		if err := p.Pre.Check(true, 0); err != nil {
			return w, false, err
		}
	}
	change.After = w
	return w, made, tenants.Audit(ctx, tx, tenant, "", change)
}

// mostPastVersions limits how many earlier versions of a workflow are kept. A tick that fired before them has the earliest one.
const mostPastVersions = 100

func countWorkflows(ctx context.Context, db postgres.DB, tenant tenants.ID) (n int, err error) {
	if err := db.QueryRow(ctx, `SELECT count(*) FROM workflow WHERE tenant_id = $1`, tenant).Scan(&n); err != nil {
		return 0, fmt.Errorf("count workflows: %w", err)
	}
	return n, nil
}

// roomForWorkflow returns a fault if the quota allows no further workflow.
// Two workflows that are made at the same time may exceed it by one.
func roomForWorkflow(ctx context.Context, db postgres.DB, tenant tenants.ID, quota int) error {
	n, err := countWorkflows(ctx, db, tenant)
	if err == nil && n >= quota {
		return tenants.Exceeded("workflows", quota, n)
	}
	return err
}

// presentWorkflow is a workflow as it is before a change, if it exists.
func presentWorkflow(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string) (w Workflow, exists bool, err error) {
	rows, _ := tx.Query(ctx, `SELECT `+workflowColumns+` FROM workflow WHERE tenant_id = $1 AND name = $2`, tenant, name) // CollectExactlyOneRow reports the error
	w, err = pgx.CollectExactlyOneRow(rows, scanWorkflow)
	if errors.Is(err, pgx.ErrNoRows) {
		return w, false, nil
	}
	return w, err == nil, err
}

// Workflow returns one workflow.
func (s *Schedules) Workflow(ctx context.Context, tenant tenants.ID, name string) (Workflow, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	rows, _ := s.Pool.Query(ctx, `SELECT `+workflowColumns+` FROM workflow WHERE tenant_id = $1 AND name = $2`, tenant, name) // CollectExactlyOneRow reports the error
	w, err := pgx.CollectExactlyOneRow(rows, scanWorkflow)
	if errors.Is(err, pgx.ErrNoRows) {
		return w, noWorkflow(name)
	}
	return w, err
}

func noWorkflow(name string) error { return fault.NotFound("no workflow %q", name) }

// Workflows returns a page of a tenant's workflows by name, and the cursor of the next page, if there is one.
func (s *Schedules) Workflows(ctx context.Context, tenant tenants.ID, limit int, cursor string) (page []Workflow, next *string, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	after := ""
	paging, err := s.Cursors.Page(int32(tenant), "workflows", limit, cursor, &after)
	if err != nil {
		return nil, nil, err
	}
	rows, _ := s.Pool.Query(ctx, `
		SELECT `+workflowColumns+`
		FROM workflow
		WHERE tenant_id = $1 AND name > $2
		ORDER BY name
		LIMIT $3`, tenant, after, paging.Rows()) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, scanWorkflow)
	if err != nil {
		return nil, nil, err
	}
	return web.Cut(paging, found, false, func(one Workflow) string { return one.Name })
}

// DeleteWorkflow deletes a workflow. Ticks of its schedules are skipped until a workflow of that name exists again.
func (s *Schedules) DeleteWorkflow(ctx context.Context, tenant tenants.ID, name string, pre version.Precondition) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		was, err := lockDefaults(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		before, exists, err := presentWorkflow(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		if !exists {
			return noWorkflow(name)
		}
		if err := pre.Check(true, before.revision()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM workflow WHERE tenant_id = $1 AND name = $2`, tenant, name); err != nil {
			return err
		}
		if err := tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: "workflow.delete", Target: "workflows/" + name, Before: before}); err != nil {
			return err
		}
		if err := s.inherit(ctx, tx, tenant, name, was.defaults, nil); err != nil {
			return err
		}
		return s.fallBack(ctx, tx, tenant, name, was.fallback, nil)
	})
}
