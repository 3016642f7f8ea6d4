package tenants

import (
	"errors"
	"slices"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/carillonhq/carillon/internal/web"
)

// An issuer names its claims and scopes as it likes. Several tenants may have the same issuer: a token is for the tenant that it names.
func TestAnIssuerMapsItsClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const iss = "https://shared.okta.example"
	key := []web.Raw{jwkOf(t, "ed", w.ed.Public())}
	okta := Issuer{
		Name: iss, Keys: key, Audience: "api://carillon", Claims: &ClaimNames{Tenant: "https://okta.example/org", Scope: "scp", Workflows: "flows"},
		Scopes: map[string]string{"carillon.read": SchedulesRead, "carillon.work": TicksWork, "schedules:write": SchedulesRead},
	}
	mine := okta
	mine.Claims = &ClaimNames{Tenant: "org"}
	mine.Audience, mine.Scopes = "", nil
	for name, i := range map[string]Issuer{"acme": okta, "other": okta, "third": mine} {
		if err := checkIssuers([]Issuer{i}, w.minter.Name(), web.Outbound{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Put(t.Context(), w.pool, name, Params{Issuers: []Issuer{i}}); err != nil {
			t.Fatal(err)
		}
	}
	type m = map[string]any
	base := m{"iss": iss, "tenant": nil, "scope": nil, "aud": "api://carillon"}
	sign := func(claims m) string {
		all := m{}
		for _, set := range []m{base, claims} {
			for name, v := range set {
				all[name] = v
			}
		}
		return w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, all)
	}
	for name, c := range map[string]struct {
		claims m
		tenant string // empty: it is refused
		scopes []string
		flows  []string
	}{
		"mapped":                      {m{"https://okta.example/org": "acme", "scp": []string{"carillon.read", "carillon.work", "email"}}, "acme", []string{SchedulesRead, TicksWork}, nil},
		"another tenant":              {m{"https://okta.example/org": "other", "scp": "carillon.work"}, "other", []string{TicksWork}, nil},
		"our names count too":         {m{"https://okta.example/org": "acme", "scp": "endpoints:write"}, "acme", []string{EndpointsWrite}, nil},
		"a name of ours is mapped":    {m{"https://okta.example/org": "acme", "scp": "schedules:write"}, "acme", []string{SchedulesRead}, nil},
		"limited":                     {m{"https://okta.example/org": "acme", "scp": "carillon.read", "flows": []string{"mail"}}, "acme", []string{SchedulesRead}, []string{"mail"}},
		"workflows are not flows":     {m{"https://okta.example/org": "acme", "scp": "carillon.read", "workflows": []string{"mail"}}, "acme", []string{SchedulesRead}, nil},
		"platform:admin is none":      {m{"https://okta.example/org": "acme", "scp": "platform:admin"}, "acme", nil, nil},
		"scope is not scp":            {m{"https://okta.example/org": "acme", "scope": "schedules:read"}, "acme", nil, nil},
		"by another mapping":          {m{"org": "third", "scope": "schedules:read", "aud": "carillon"}, "third", []string{SchedulesRead}, nil},
		"a tenant of another mapping": {m{"org": "acme", "scope": "schedules:read"}, "", nil, nil},
		"the unmapped claim":          {m{"tenant": "acme", "scp": "carillon.read"}, "", nil, nil},
		"the unmapped claim beside":   {m{"tenant": "other", "https://okta.example/org": "acme", "scp": "carillon.read"}, "acme", []string{SchedulesRead}, nil},
		"an unknown tenant":           {m{"https://okta.example/org": "nobody", "scp": "carillon.read"}, "", nil, nil},
		"no tenant":                   {m{"scp": "carillon.read"}, "", nil, nil},
		"a list of tenants":           {m{"https://okta.example/org": []string{"acme"}, "scp": "carillon.read"}, "", nil, nil},
		"our audience":                {m{"https://okta.example/org": "acme", "scp": "carillon.read", "aud": "carillon"}, "", nil, nil},
		"its audience at another":     {m{"org": "third", "scope": "schedules:read"}, "", nil, nil},
		"no audience":                 {m{"https://okta.example/org": "acme", "scp": "carillon.read", "aud": nil}, "", nil, nil},
		"flows a text":                {m{"https://okta.example/org": "acme", "scp": "carillon.read", "flows": "mail"}, "", nil, nil},
	} {
		who, err := w.verifier.Verify(t.Context(), sign(c.claims))
		if c.tenant == "" {
			if _, refused := errors.AsType[errToken](err); !refused {
				t.Errorf("%s: got %+v, %v", name, who, err)
			}
			continue
		}
		if err != nil || who.TenantName != c.tenant || !slices.Equal(who.Scopes, c.scopes) || who.Platform || !slices.Equal(who.Workflows, c.flows) {
			t.Errorf("%s: got %+v, %v", name, who, err)
		}
	}
}
