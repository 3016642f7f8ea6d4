package tenants

import (
	"slices"
	"strings"
)

// Scopes are what a token may do.
const (
	SchedulesRead  = "schedules:read"
	SchedulesWrite = "schedules:write"
	TicksWork      = "ticks:work"      // lease and finish ticks
	EndpointsWrite = "endpoints:write" // endpoints, their secrets and headers
	SubjectsErase  = "subjects:erase"  // erase all that is kept of a key: it cannot be undone
	TenantAdmin    = "tenant:admin"    // the operator of one tenant: implies the others of that tenant
	PlatformAdmin  = "platform:admin"  // of those who run the service; a token with it names no tenant
)

// TenantScopes are all scopes that a tenant's token can bear.
func TenantScopes() []string {
	return []string{SchedulesRead, SchedulesWrite, TicksWork, EndpointsWrite, SubjectsErase, TenantAdmin}
}

// Identity is who sent a request, and what they may do.
type Identity struct {
	Tenant     ID     // 0: the platform's operator
	TenantName string // "" with Tenant 0
	Subject    string
	Scopes     []string // of those that the token bears: the known ones that count for it
	Platform   bool     // may do what platform:admin may
	Workflows  []string // the only ones that the token is good for; nil: all
}

// MayUse reports whether the token is good for that workflow.
func (i Identity) MayUse(workflow string) bool {
	return i.Workflows == nil || slices.Contains(i.Workflows, workflow)
}

// May reports whether a request by this identity may do what needs that scope.
func (i Identity) May(scope string) bool {
	if scope == PlatformAdmin {
		return i.Platform
	}
	return i.Tenant != 0 && (slices.Contains(i.Scopes, scope) || slices.Contains(i.Scopes, TenantAdmin))
}

// scopesOf are the known scopes of a claim, which separates them by spaces (RFC 6749 section 3.3).
func scopesOf(claim string) []string {
	var known []string
	for s := range strings.SplitSeq(claim, " ") {
		if s == PlatformAdmin || slices.Contains(TenantScopes(), s) {
			known = append(known, s)
		}
	}
	return known
}
