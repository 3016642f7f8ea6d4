package main

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/carillonhq/carillon/tenants"
)

// issuerKey returns a private key, and its public key as a JSON Web Key.
func issuerKey(t *testing.T) (ed25519.PrivateKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := jwkset.NewJWKFromKey(public, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(k.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	return private, string(text)
}

// A tenant's operator sets issuers of its own. Their tokens work until they are replaced; those of the platform stay.
func TestATenantSetsItsOwnIssuers(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	private, public := issuerKey(t)
	_, theirs := issuerKey(t)
	s.expect(t, client, platform, "PUT", "/v1/platform/tenants/acme", fmt.Sprintf(`{"issuers": [{"issuer": "of-platform", "keys": [%s]}]}`, theirs), 200, "")
	const path = "/v1/admin/issuers"
	own := fmt.Sprintf(`{"issuer": "own", "keys": [%s], "audience": "us", "claims": {"tenant": "org", "scope": "scp"}, "scopes": {"r": "schedules:read"}}`, public)
	s.expect(t, client, admin, "PUT", path, `{"issuers": [`+own+`]}`, 200, "")

	got, _ := s.ask(t, client, admin, "GET", path, nil, nil, patience)
	var all struct {
		Issuers []struct {
			Issuer string
			SetBy  string `json:"set_by"`
		}
	}
	if err := json.Unmarshal(got.body, &all); err != nil || len(all.Issuers) != 2 || all.Issuers[0].SetBy != "platform" || all.Issuers[1].SetBy != "tenant" {
		t.Fatalf("got %s, %v", got.body, err)
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "own", "aud": "us", "sub": "ann", "org": "acme", "scp": []string{"r"}, "exp": time.Now().Add(time.Hour).Unix(),
	})
	unsigned.Header["kid"] = "k"
	token, err := unsigned.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	s.expect(t, client, token, "GET", "/v1/schedules", "", 200, "")
	s.expect(t, client, token, "PUT", path, `{"issuers": []}`, 403, "insufficient_scope")
	if self := s.expect(t, client, token, "GET", "/v1/self", "", 200, ""); self["actor"] != "ann" || self["tenant"] != "acme" {
		t.Errorf("got %v", self)
	}

	sent := http.Header{"Content-Type": {"application/json"}, "If-Match": {got.header.Get("ETag")}}
	if again, _ := s.ask(t, client, admin, "PUT", path, sent, got.body, patience); again.status != 200 { // what was read can be sent back
		t.Errorf("got %d %s", again.status, again.body)
	}
	if again, _ := s.ask(t, client, admin, "PUT", path, sent, got.body, patience); again.status != 412 {
		t.Errorf("an old tag: got %d %s", again.status, again.body)
	}
	s.expect(t, client, token, "GET", "/v1/schedules", "", 200, "")
	for pointer, issuer := range map[string]string{
		"/issuers/0/issuer":           `{"issuer": "of-platform", "keys": [` + public + `]}`,
		"/issuers/0/set_by":           `{"issuer": "own", "keys": [` + public + `], "set_by": "platform"}`,
		"/issuers/0":                  `{"issuer": "own"}`,
		"/issuers/0/scopes/r":         `{"issuer": "own", "keys": [` + public + `], "scopes": {"r": "platform:admin"}}`,
		"/issuers/0/claims/tenant":    `{"issuer": "own", "keys": [` + public + `], "claims": {"tenant": "` + strings.Repeat("x", 257) + `"}}`,
		"/issuers/0/audience":         `{"issuer": "own", "keys": [` + public + `], "audience": "` + strings.Repeat("x", 513) + `"}`,
		"/issuers/0/jwks_uri":         `{"issuer": "own", "jwks_uri": "http://169.254.169.254/keys"}`,
		"/issuers/1/issuer":           own + "," + own,
		"/issuers/0/scopes/a~1b":      `{"issuer": "own", "keys": [` + public + `], "scopes": {"a/b": "all"}}`,
		"/issuers/0/claims/workflows": `{"issuer": "own", "keys": [` + public + `], "claims": {"workflows": "a\nb"}}`,
		"/issuers/0/algorithms/0":     `{"issuer": "own", "keys": [` + public + `], "algorithms": ["none"]}`,
	} {
		_, answer := s.send(t, client, admin, "PUT", path, "application/json", `{"issuers": [`+issuer+`]}`)
		if !strings.Contains(string(answer), `"pointer":"`+pointer+`"`) {
			t.Errorf("%s: got %s, want a fault at %s", issuer, answer, pointer)
		}
	}
	s.expect(t, client, admin, "PUT", path, `{"issuers": []}`, 200, "")
	for deadline := time.Now().Add(inTime); ; <-time.After(20 * time.Millisecond) {
		if status, _ := s.send(t, client, token, "GET", "/v1/schedules", "", ""); status == 401 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a token of an issuer that is gone is accepted still")
		}
	}
	if got := s.expect(t, client, platform, "GET", "/v1/platform/tenants/acme", "", 200, ""); len(got["issuers"].([]any)) != 1 {
		t.Errorf("the platform's issuers are %v", got["issuers"])
	}
}
