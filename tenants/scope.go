package tenants

import (
	"slices"
	"time"
)

// The scopes of tokens: what their bearers may do.
const (
	SchedulesRead  = "schedules:read"
	SchedulesWrite = "schedules:write"
	TicksWork      = "ticks:work"      // lease and finish ticks
	EndpointsWrite = "endpoints:write" // endpoints, their secrets and headers
	SubjectsErase  = "subjects:erase"  // erase all data of a key, which cannot be undone
	TenantRead     = "tenant:read"     // all that the tenant's operator may read; implies schedules:read
	TenantAdmin    = "tenant:admin"    // the operator of one tenant; implies the tenant's other scopes
	PlatformAdmin  = "platform:admin"  // the operator of the service; its token names no tenant
)

// TenantScopes returns all scopes that a tenant's token can have.
func TenantScopes() []string {
	return []string{SchedulesRead, SchedulesWrite, TicksWork, EndpointsWrite, SubjectsErase, TenantRead, TenantAdmin}
}

// Identity is the sender of a request with its rights.
type Identity struct {
	Tenant     ID     // 0: the platform's operator
	TenantName string // "" with Tenant 0
	Subject    string
	Scopes     []string   // the known scopes of the token that it may use
	Platform   bool       // has the scope platform:admin
	Workflows  []string   // the token is limited to these; nil: not limited
	ExpiresAt  *time.Time // nil: it does not expire
}

// MayUse reports whether the token allows the workflow.
func (i Identity) MayUse(workflow string) bool {
	return i.Workflows == nil || slices.Contains(i.Workflows, workflow)
}

// May reports whether the identity has the scope, or a scope that implies it.
func (i Identity) May(scope string) bool {
	if scope == PlatformAdmin {
		return i.Platform
	}
	implied := scope == SchedulesRead && slices.Contains(i.Scopes, TenantRead)
	return i.Tenant != 0 && (implied || slices.Contains(i.Scopes, scope) || slices.Contains(i.Scopes, TenantAdmin))
}

// known returns those of some scopes that Carillon knows.
func known(scopes []string) (all []string) {
	for _, s := range scopes {
		if s == PlatformAdmin || slices.Contains(TenantScopes(), s) {
			all = append(all, s)
		}
	}
	return all
}
