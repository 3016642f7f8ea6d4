package tenants

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
)

// Platform stores and erases tenants for the platform's operator.
type Platform struct {
	DB       postgres.DB // sees the tenants, and none of their rows
	Cursors  *web.Cursor
	Issuer   string       // the platform's own issuer, which no tenant may use
	Outbound web.Outbound // the policy for a tenant's jwks_uri
	Tenants  *Directory   // the cache to invalidate after a change; may be nil

	// Empty deletes the rows of an erased tenant, and then the tenant. It returns false if some rows are left; the caller then calls it
	// again.
	Empty func(ctx context.Context, tenant ID) (done bool, err error)
}

// store creates or changes a tenant if the precondition holds. made reports that it is new.
func (p Platform) store(ctx context.Context, name string, params Params, pre version.Precondition) (t Tenant, made bool, err error) {
	if err := p.check(name, params); err != nil {
		return t, false, err
	}
	if err := checkRecordDays(ctx, p.DB, params.Quotas); err != nil {
		return t, false, err
	}
	err = pgx.BeginFunc(ctx, p.DB, func(tx pgx.Tx) (err error) {
		t, made, err = putAudited(ctx, tx, name, params, pre)
		return err
	})
	if err == nil {
		p.Tenants.forget(t)
	}
	return t, made, err
}

// tenantPatch is what a merge patch of a tenant may have.
type tenantPatch struct {
	Name    string   `json:"name,omitempty"`
	Status  string   `json:"status,omitempty"`
	Quotas  Quotas   `json:"quotas,omitzero"`
	Issuers []Issuer `json:"issuers,omitempty"`
}

// patch applies a merge patch to the params of a tenant if the precondition holds. null restores the default of a quota.
func (p Platform) patch(ctx context.Context, name string, patch []byte, pre version.Precondition) (t Tenant, err error) {
	err = pgx.BeginFunc(ctx, p.DB, func(tx pgx.Tx) error {
		params, err := lockParams(ctx, tx, name)
		if err != nil {
			return err
		}
		if params, err = web.Merged[tenantPatch, Params](params, patch); err != nil {
			return err
		}
		if err := p.check(name, params); err != nil {
			return err
		}
		if err := checkRecordDays(ctx, tx, params.Quotas); err != nil {
			return err
		}
		t, _, err = putAudited(ctx, tx, name, params, pre)
		return err
	})
	if err == nil {
		p.Tenants.forget(t)
	}
	return t, err
}

// lockParams locks a tenant and returns what was put of it.
func lockParams(ctx context.Context, tx pgx.Tx, name string) (p Params, err error) {
	var issuers []byte
	err = tx.QueryRow(ctx, `SELECT status, quotas, issuers FROM tenant WHERE name = $1 FOR UPDATE`, name).Scan(&p.Status, (*[]byte)(&p.Quotas), &issuers)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, fault.NotFound("no tenant %q", name)
	}
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(issuers, &p.Issuers)
}

func (p Platform) check(name string, params Params) error {
	if !web.IsName(name) {
		return fault.Invalid("/tenant", "a tenant's name is 1 to 128 of A-Z a-z 0-9 . _ -")
	}
	if params.Name != "" && params.Name != name {
		return fault.Invalid("/name", "is not the name in the path")
	}
	return checkIssuers(params.Issuers, p.Issuer, p.Outbound)
}
