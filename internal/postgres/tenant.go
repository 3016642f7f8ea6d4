package postgres

import (
	"context"
	"errors"
	"strconv"
)

// TenantSetting is the parameter of a session or transaction that says whose rows it may see. It is what the policies of
// the tables read.
const TenantSetting = "carillon.tenant"

// The roles that queries run as, whoever has logged in: migrations.Up makes them. Their grants and policies stand in
// package migrations.
const (
	// APIRole is what a tenant's requests run as: its rows alone are there.
	APIRole = "carillon_api"
	// PlatformRole is what spans tenants before one is known and where the platform's operator asks: it sees who the
	// tenants are and their API keys, and none of their other rows.
	PlatformRole = "carillon_platform"
	// EngineRole is what the sweep, the dispatch and operations run as. It owns the tables.
	EngineRole = "carillon_engine"
)

type tenantKey struct{}

// ForTenant returns a context whose queries through a Wall see the rows of that tenant, and no other's.
func ForTenant(ctx context.Context, tenantID int32) context.Context {
	return context.WithValue(ctx, tenantKey{}, strconv.Itoa(int(tenantID)))
}

// HasTenant tells whether ForTenant has set a tenant.
func HasTenant(ctx context.Context) bool {
	_, ok := ctx.Value(tenantKey{}).(string)
	return ok
}

var errNoTenant = errors.New("a query of a tenant's rows, and its context says no tenant")
