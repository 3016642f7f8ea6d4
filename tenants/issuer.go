package tenants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

// Issuer signs tokens of a tenant. It has a name, and either public keys or the address that publishes them.
type Issuer struct {
	Name       string    `json:"issuer"`
	JWKSURI    string    `json:"jwks_uri,omitempty"`
	Keys       []web.Raw `json:"keys,omitempty"` // JSON Web Keys, public
	Algorithms []string  `json:"algorithms,omitempty"`

	Audience string            `json:"audience,omitempty"` // the required aud of its tokens; empty: that of the service
	Claims   *ClaimNames       `json:"claims,omitempty"`
	Scopes   map[string]string `json:"scopes,omitempty"` // its names of scopes, and ours; a name that is absent is ours

	keys []Key
}

// ClaimNames are the names of an issuer's claims that hold what Carillon asks of a token. An empty name is the usual one. A name is that
// of a member of the token, and no path into it.
type ClaimNames struct {
	Tenant    string `json:"tenant,omitempty"`
	Scope     string `json:"scope,omitempty"`
	Workflows string `json:"workflows,omitempty"`
}

// names returns the names of an issuer's claims. A nil issuer is the platform's.
func (i *Issuer) names() ClaimNames {
	n := ClaimNames{Tenant: "tenant", Scope: "scope", Workflows: "workflows"}
	if i != nil && i.Claims != nil {
		n.Tenant, n.Scope, n.Workflows = cmp.Or(i.Claims.Tenant, n.Tenant), cmp.Or(i.Claims.Scope, n.Scope), cmp.Or(i.Claims.Workflows, n.Workflows)
	}
	return n
}

// The limits of one tenant's issuers.
const (
	maxKeys       = 50
	maxIssuerName = 512
	maxAudience   = 512
	maxClaimName  = 256
	maxScopes     = 100 // in the map of one issuer
)

// checkIssuers returns all faults of the issuers, and parses their keys. platform is the name of the platform's own issuer, which no
// tenant may use.
func checkIssuers(issuers []Issuer, platform string, allowed web.Outbound) error {
	var bad []error
	for n := range issuers {
		i, at := &issuers[n], "/issuers/"+strconv.Itoa(n)
		if i.Name == "" || len(i.Name) > maxIssuerName || strings.ContainsFunc(i.Name, unicode.IsControl) {
			bad = append(bad, fault.Invalid(at+"/issuer", "must be 1 to %d bytes of text", maxIssuerName))
		}
		if i.Name == platform {
			bad = append(bad, fault.Invalid(at+"/issuer", "is the platform's own issuer"))
		}
		if slices.ContainsFunc(issuers[:n], func(o Issuer) bool { return o.Name == i.Name }) {
			bad = append(bad, fault.Invalid(at+"/issuer", "appears twice"))
		}
		if (i.JWKSURI == "") == (len(i.Keys) == 0) {
			bad = append(bad, fault.Invalid(at, "needs one of jwks_uri and keys"))
		}
		if i.JWKSURI != "" {
			if err := allowed.Check(i.JWKSURI); err != nil {
				bad = append(bad, fault.Invalid(at+"/jwks_uri", "%s", err))
			}
		}
		for a, algorithm := range i.Algorithms {
			if !slices.Contains(algorithms(), algorithm) {
				bad = append(bad, fault.Invalid(at+"/algorithms/"+strconv.Itoa(a), "must be one of %s", strings.Join(algorithms(), ", ")))
			}
		}
		bad = append(bad, i.read(at), i.checkMapping(at))
	}
	return fault.Join(bad...)
}

// checkMapping returns all faults of the audience, of the names of claims, and of the map of scopes.
func (i *Issuer) checkMapping(at string) error {
	var bad []error
	text := func(pointer, s string, most int) {
		if len(s) > most || strings.ContainsFunc(s, unicode.IsControl) {
			bad = append(bad, fault.Invalid(at+pointer, "must be 1 to %d bytes of text", most))
		}
	}
	text("/audience", i.Audience, maxAudience)
	if c := i.Claims; c != nil {
		text("/claims/tenant", c.Tenant, maxClaimName)
		text("/claims/scope", c.Scope, maxClaimName)
		text("/claims/workflows", c.Workflows, maxClaimName)
	}
	if len(i.Scopes) > maxScopes {
		bad = append(bad, fault.Invalid(at+"/scopes", "must be at most %d scopes", maxScopes))
	}
	for _, theirs := range slices.Sorted(maps.Keys(i.Scopes)) {
		pointer := "/scopes/" + web.Pointer(theirs)
		text(pointer, theirs, maxClaimName)
		if !slices.Contains(TenantScopes(), i.Scopes[theirs]) {
			bad = append(bad, fault.Invalid(at+pointer, "must be one of %s", strings.Join(TenantScopes(), ", ")))
		}
	}
	return fault.Join(bad...)
}

// read parses the issuer's JSON Web Keys.
func (i *Issuer) read(at string) error {
	if len(i.Keys) > maxKeys {
		return fault.Invalid(at+"/keys", "must be at most %d keys", maxKeys)
	}
	i.keys = nil
	var bad []error
	for n, raw := range i.Keys {
		k, err := ParseKey(raw)
		if err != nil {
			bad = append(bad, fault.Invalid(at+"/keys/"+strconv.Itoa(n), "%s", err))
			continue
		}
		i.keys = append(i.keys, k)
		if err := ambiguous(i.keys); err != nil {
			bad = append(bad, fault.Invalid(at+"/keys/"+strconv.Itoa(n), "%s", err))
		}
	}
	return fault.Join(bad...)
}

// ambiguous returns an error if the last key has the kid and algorithm of another key, or if too many keys without a kid have its
// algorithm. A token cannot name such a key.
func ambiguous(keys []Key) error {
	last := keys[len(keys)-1]
	same := 0
	for _, k := range keys[:len(keys)-1] {
		if k.ID == last.ID && k.Algorithm == last.Algorithm {
			same++
		}
	}
	if last.ID != "" && same > 0 {
		return fmt.Errorf("has the kid %q of another %s key", last.ID, last.Algorithm)
	}
	if same >= mostCandidates {
		return fmt.Errorf("is one %s key without a kid too many: at most %d may have none", last.Algorithm, mostCandidates)
	}
	return nil
}

// allows reports whether the issuer may sign tokens with the algorithm.
func (i *Issuer) allows(algorithm string) bool {
	if len(i.Algorithms) == 0 {
		return slices.Contains(algorithms(), algorithm)
	}
	return slices.Contains(i.Algorithms, algorithm)
}
