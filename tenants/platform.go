package tenants

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
)

// Platform stores and erases tenants for the platform's operator.
type Platform struct {
	DB       postgres.DB // it shows who the tenants are, and none of their rows
	Cursors  *web.Cursor
	Issuer   string       // the platform's own, which no tenant may have
	Outbound web.Outbound // where a tenant's jwks_uri may lie
	Tenants  *Directory   // is told of each change at once; nil: none

	// Empty deletes every row of a tenant that is to be erased, and the tenant; false: some are left, and it is to be
	// called again.
	Empty func(ctx context.Context, tenant ID) (done bool, err error)
}

// store makes or changes a tenant if it is as the request demands, and reports whether it is new.
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

func (p Platform) check(name string, params Params) error {
	if !web.IsName(name) {
		return fault.Invalid("/tenant", "a tenant's name is 1 to 128 of A-Z a-z 0-9 . _ -")
	}
	if params.Name != "" && params.Name != name {
		return fault.Invalid("/name", "is not the name in the path")
	}
	return checkIssuers(params.Issuers, p.Issuer, p.Outbound)
}
