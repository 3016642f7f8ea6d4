package postgres

import (
	"context"
	"errors"
	"strconv"
)

// TenantSetting is the session or transaction parameter that names the tenant. The row policies of the tables read it.
const TenantSetting = "carillon.tenant"

// The roles that queries run as, independent of the login role. migrations.Up creates them; package migrations has their grants and
// policies.
const (
	// APIRole runs the requests of tenants. It sees the rows of one tenant.
	APIRole = "carillon_api"
	// PlatformRole runs queries across tenants: before the tenant of a request is known, and for the operator of the platform. It sees
	// the tenants and their API keys, and no other rows.
	PlatformRole = "carillon_platform"
	// EngineRole runs the sweep, the dispatch and operations. It owns the tables.
	EngineRole = "carillon_engine"
)

type tenantKey struct{}

// ForTenant returns a context for the rows of one tenant: queries through a TenantPool see only these.
func ForTenant(ctx context.Context, tenantID int32) context.Context {
	return context.WithValue(ctx, tenantKey{}, strconv.Itoa(int(tenantID)))
}

// HasTenant reports whether the context has a tenant from ForTenant.
func HasTenant(ctx context.Context) bool {
	_, ok := ctx.Value(tenantKey{}).(string)
	return ok
}

var errNoTenant = errors.New("a query of a tenant's rows has no tenant in its context")
