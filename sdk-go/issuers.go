package carillon

import (
	"context"
	"encoding/json"
	"net/http"
)

// Issuer issues tokens of a tenant. Their signatures are checked with the keys at JWKSURI, or with Keys.
type Issuer struct {
	Issuer     string            `json:"issuer"` // the claim iss
	JWKSURI    string            `json:"jwks_uri,omitempty"`
	Keys       []json.RawMessage `json:"keys,omitempty"`       // public JWKs (RFC 7517)
	Algorithms []string          `json:"algorithms,omitempty"` // "ES256", "EdDSA", "RS256"
	Audience   string            `json:"audience,omitempty"`   // what the claim aud must hold; empty: carillon
	Claims     *ClaimNames       `json:"claims,omitempty"`     // nil: the default names
	Scopes     map[string]string `json:"scopes,omitempty"`     // its names of scopes, and the scopes of Carillon that they stand for
}

// ClaimNames name the claims that hold the tenant, the scopes and the workflows of a token. Empty ones are the default names, which are
// tenant, scope and workflows.
type ClaimNames struct {
	Tenant    string `json:"tenant,omitempty"`
	Scope     string `json:"scope,omitempty"`
	Workflows string `json:"workflows,omitempty"`
}

// SetIssuer is an issuer and who set it.
type SetIssuer struct {
	Issuer
	SetBy string `json:"set_by,omitempty"` // "platform" or "tenant"; PutIssuers ignores those of the platform
}

// Issuers are all issuers of the tenant, those of the platform first.
type Issuers struct {
	Issuers []SetIssuer `json:"issuers"`

	ETag string `json:"-"` // the version, for IssuersParams
}

// IssuersParams replace the issuers that the tenant set.
type IssuersParams struct {
	Issuers []SetIssuer `json:"issuers"`

	IfMatch string `json:"-"` // if not empty, the ETag that must be the stored one
}

// Issuers returns the issuers of the tenant.
func (a Admin) Issuers(ctx context.Context) (Issuers, error) {
	r := &call{method: http.MethodGet, path: path("admin", "issuers")}
	i, err := read[Issuers](ctx, a.c, r)
	i.ETag = r.etag
	return i, err
}

// PutIssuers replaces the issuers that the tenant set. Within 5 s tokens of a removed issuer are refused everywhere.
func (a Admin) PutIssuers(ctx context.Context, p IssuersParams) (Issuers, error) {
	if p.Issuers == nil {
		p.Issuers = []SetIssuer{}
	}
	r := &call{method: http.MethodPut, path: path("admin", "issuers"), header: ifETag(p.IfMatch), once: p.IfMatch != ""}
	i, err := send[Issuers](ctx, a.c, r, p)
	i.ETag = r.etag
	return i, err
}
