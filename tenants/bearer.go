package tenants

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/carillonhq/carillon/internal/web"
)

// unsigned returns the error of a token that no key of its issuer has signed. The text is the same for an unknown tenant, issuer or key
// and for a wrong signature, so that nobody can find out which tenants and issuers exist.
func unsigned() error { return refuse("the token is not signed by a known key of its issuer") }

// bearer is the issuer and the tenant that a token claims. The signature proves them afterwards.
type bearer struct {
	platform bool    // the platform's own issuer
	tenant   Tenant  // zero: the token names none, or an unknown one
	name     string  // of the tenant
	named    bool    // the token names a tenant
	issuer   *Issuer // nil: the platform's
}

func (v *Verifier) bearer(ctx context.Context, claims jwt.MapClaims) (who bearer, err error) {
	iss, ok := claims["iss"].(string)
	if !ok || iss == "" {
		return who, refuse("the token has no iss")
	}
	name, named := claims["tenant"].(string)
	who.platform = iss == v.Issuer
	if _, there := claims["tenant"]; who.platform && (there && !named || named && name == "") {
		return who, refuse("the token's tenant is not a name")
	}
	who.name, who.named = name, named
	if who.platform { // Verify looks the tenant up after it has verified the signature
		return who, nil
	}
	if named && web.IsName(name) {
		t, err := v.Tenants.named(ctx, name, false)
		if err != nil {
			return who, err
		}
		if i := t.issuer(iss); i != nil && i.names().Tenant == "tenant" {
			who.tenant, who.issuer = t, i
			return who, nil
		}
	}
	return v.mapped(ctx, iss, claims)
}

// mapped returns the bearer of a token whose issuer has another name for the claim tenant. Several tenants may have the same issuer: the
// token is for the one whose name that claim has.
func (v *Verifier) mapped(ctx context.Context, iss string, claims jwt.MapClaims) (who bearer, err error) {
	names, err := v.Tenants.withIssuer(ctx, iss)
	if err != nil {
		return who, err
	}
	named := map[string]bool{} // so that a made-up token costs no look-up of tenants that it does not name
	for _, claim := range claims {
		if text, ok := claim.(string); ok {
			named[text] = true
		}
	}
	for _, name := range names {
		if !named[name] {
			continue
		}
		t, err := v.Tenants.named(ctx, name, true)
		if err != nil {
			return who, err
		}
		i := t.issuer(iss)
		if i == nil || i.names().Tenant == "tenant" {
			continue
		}
		if claims[i.names().Tenant] == any(t.Name) {
			return bearer{tenant: t, name: t.Name, named: true, issuer: i}, nil
		}
	}
	return who, unsigned()
}

// audience refuses a token that is for another service.
func (v *Verifier) audience(claims jwt.MapClaims, who bearer) error {
	want := v.Audience
	if who.issuer != nil && who.issuer.Audience != "" {
		want = who.issuer.Audience
	}
	aud, err := claims.GetAudience()
	switch {
	case err != nil:
		return refuse("the token has an invalid claim")
	case len(aud) == 0:
		return refuse("the token lacks a required claim")
	case !slices.Contains(aud, want):
		return refuse("the token is for another audience")
	}
	return nil
}

// scopes returns our names of the known scopes of a token. The claim is a string with spaces between the scopes, or a list; the platform's
// own is a string.
func (who bearer) scopes(claims jwt.MapClaims) ([]string, error) {
	claim, there := claims[who.issuer.names().Scope]
	var theirs []string
	switch claim := claim.(type) {
	case string:
		theirs = strings.Split(claim, " ")
	case []any:
		for _, one := range claim {
			name, ok := one.(string)
			if !ok || who.platform {
				return nil, refuse("the token's scope is not a string")
			}
			theirs = append(theirs, name)
		}
	default:
		if there {
			return nil, refuse("the token's scope is not a string")
		}
	}
	if who.issuer != nil {
		for i, name := range theirs {
			theirs[i] = cmp.Or(who.issuer.Scopes[name], name)
		}
	}
	return known(theirs), nil
}
