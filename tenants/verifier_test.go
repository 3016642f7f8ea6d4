package tenants

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

// world is a platform with two tenants, one of which has an issuer of its own.
type world struct {
	pool     *pgxpool.Pool
	verifier *Verifier
	minter   Minter
	acme     Tenant
	other    Tenant
	ed       ed25519.PrivateKey
	ec       *ecdsa.PrivateKey
	rsa      *rsa.PrivateKey
	now      time.Time
}

const acmeIssuer = "https://login.acme.example"

func jwkOf(t *testing.T, kid string, public crypto.PublicKey) web.Raw {
	t.Helper()
	k, err := jwkset.NewJWKFromKey(public, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(k.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{pool: postgrestest.Database(t), now: time.Now().Truncate(time.Second)}
	_, platform, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, w.ed, err = ed25519.GenerateKey(nil); err != nil {
		t.Fatal(err)
	}
	if w.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if w.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	w.minter = NewIssuer(platform, "carillon-test")
	issuers := []Issuer{
		{Name: acmeIssuer, Keys: []web.Raw{jwkOf(t, "ed", w.ed.Public()), jwkOf(t, "ec", w.ec.Public()), jwkOf(t, "rsa", w.rsa.Public())}},
		{Name: "only-ed", Keys: []web.Raw{jwkOf(t, "", w.ed.Public())}, Algorithms: []string{edDSA}},
	}
	if err := checkIssuers(issuers, w.minter.Name(), web.Outbound{}); err != nil {
		t.Fatal(err)
	}
	if w.acme, _, err = Put(t.Context(), w.pool, "acme", Params{Issuers: issuers}); err != nil {
		t.Fatal(err)
	}
	if w.other, err = Ensure(t.Context(), w.pool, "other", Defaults()); err != nil {
		t.Fatal(err)
	}
	w.verifier = NewVerifier(VerifierOptions{
		Issuer: w.minter.Name(), Keys: []Key{w.minter.Key()}, Tenants: patientDirectory(w.pool), Now: func() time.Time { return w.now },
	})
	return w
}

// patientDirectory waits a minute for the answer of a slow database.
func patientDirectory(db postgres.DB) *Directory {
	d := NewDirectory(db)
	d.patience = time.Minute
	return d
}

// sign makes a token of acme's issuer, changed by overrides: a nil takes a member away.
func (w *world) sign(t *testing.T, method jwt.SigningMethod, key any, header, claims map[string]any) string {
	t.Helper()
	c := jwt.MapClaims{
		"iss": acmeIssuer, "aud": []string{"other", "carillon"}, "sub": "ann", "tenant": "acme", "scope": "schedules:read",
		"iat": w.now.Unix(), "exp": w.now.Add(time.Hour).Unix(),
	}
	maps.Copy(c, claims)
	token := jwt.NewWithClaims(method, c)
	kids := map[string]string{"EdDSA": "ed", "ES256": "ec", "RS256": "rsa"}
	token.Header["kid"] = kids[method.Alg()]
	maps.Copy(token.Header, header)
	for _, m := range []map[string]any{c, token.Header} {
		for name, v := range m {
			if v == nil {
				delete(m, name)
			}
		}
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVerifyTakesWhatIsRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mint := func(c Claims) string {
		s, err := w.minter.Mint(c, w.now)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	type m = map[string]any
	ann := Identity{Tenant: w.acme.ID, TenantName: "acme", Subject: "ann", Scopes: []string{SchedulesRead}}
	limited := ann
	limited.Workflows = []string{"mail"}
	root := Identity{Subject: "root", Scopes: []string{PlatformAdmin}}
	rootPlatform := root
	rootPlatform.Platform = true
	dev := Identity{Tenant: w.other.ID, TenantName: "other", Subject: "dev", Scopes: TenantScopes()}
	cases := map[string]struct {
		token string
		want  Identity
	}{
		"EdDSA":                                {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, nil), ann},
		"ES256":                                {w.sign(t, jwt.SigningMethodES256, w.ec, nil, nil), ann},
		"RS256":                                {w.sign(t, jwt.SigningMethodRS256, w.rsa, nil, nil), ann},
		"one audience":                         {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"aud": "carillon"}), ann},
		"no iat":                               {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"iat": nil}), ann},
		"at+jwt":                               {w.sign(t, jwt.SigningMethodEdDSA, w.ed, m{"typ": "at+jwt"}, nil), ann},
		"application/at+jwt":                   {w.sign(t, jwt.SigningMethodEdDSA, w.ed, m{"typ": "application/at+jwt"}, nil), ann},
		"typ in lower case":                    {w.sign(t, jwt.SigningMethodEdDSA, w.ed, m{"typ": "jwt"}, nil), ann},
		"a day, by a clock ahead of ours":      {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"exp": w.now.Unix() + 86400 + 30}), ann},
		"workflows":                            {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"workflows": []string{"mail"}}), limited},
		"no typ":                               {w.sign(t, jwt.SigningMethodEdDSA, w.ed, m{"typ": nil}, nil), ann},
		"jku, jwk":                             {w.sign(t, jwt.SigningMethodEdDSA, w.ed, m{"jku": "https://evil.example", "x5u": "https://evil.example", "jwk": m{"kty": "oct"}}, nil), ann},
		"just expired":                         {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"exp": w.now.Unix() - 29}), ann},
		"nearly valid":                         {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"nbf": w.now.Unix() + 29, "iat": w.now.Unix() + 29}), ann},
		"a whole day":                          {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"exp": w.now.Unix() + 86400}), ann},
		"no kids":                              {w.sign(t, jwt.SigningMethodEdDSA, w.ed, m{"kid": nil}, m{"iss": "only-ed"}), ann},
		"kid of no kid":                        {w.sign(t, jwt.SigningMethodEdDSA, w.ed, m{"kid": "whatever"}, m{"iss": "only-ed"}), ann},
		"minted":                               {mint(Claims{Subject: "dev", Tenant: "other", Scopes: TenantScopes(), TTL: time.Hour}), dev},
		"platform":                             {mint(Claims{Subject: "root", Tenant: "", Scopes: []string{PlatformAdmin}, TTL: time.Minute}), rootPlatform},
		"platform:admin with a tenant is none": {mint(Claims{Subject: "root", Tenant: "other", Scopes: []string{PlatformAdmin}, TTL: time.Minute}), Identity{Tenant: w.other.ID, TenantName: "other", Subject: "root", Scopes: []string{}}},
		"platform:admin of another issuer is none": {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"scope": "platform:admin"}), Identity{Tenant: w.acme.ID, TenantName: "acme", Subject: "ann", Scopes: []string{}}},
		"a list of scopes":                         {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"scope": []string{"email", "schedules:read"}}), ann},
		"unknown scopes":                           {w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, m{"scope": "email  schedules:read x"}), ann},
	}
	for name, c := range cases {
		got, err := w.verifier.Verify(t.Context(), c.token)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.ExpiresAt == nil || got.ExpiresAt.Location() != time.UTC {
			t.Errorf("%s: expires at %v", name, got.ExpiresAt)
		}
		got.ExpiresAt = nil
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type m = map[string]any
	ed := func(header, claims m) string { return w.sign(t, jwt.SigningMethodEdDSA, w.ed, header, claims) }
	good := ed(nil, nil)
	parts := strings.Split(good, ".")
	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	// again signs a header and claims that are written by hand.
	again := func(header, claims string) string {
		text := b64(header) + "." + b64(claims)
		sig, err := jwt.SigningMethodEdDSA.Sign(text, w.ed)
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + base64.RawURLEncoding.EncodeToString(sig)
	}
	claimsText, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.verifier.Verify(t.Context(), again(`{"alg":"EdDSA","kid":"ed"}`, string(claimsText))); err != nil {
		t.Fatalf("the test's own signing: %v", err)
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	minted := func(change m, private ed25519.PrivateKey) string {
		c := jwt.MapClaims{"iss": "carillon-test", "aud": "carillon", "sub": "root", "scope": "platform:admin", "iat": w.now.Unix(), "exp": w.now.Unix() + 3600}
		maps.Copy(c, change)
		for name, v := range c {
			if v == nil {
				delete(c, name)
			}
		}
		tok := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
		tok.Header["kid"] = w.minter.kid
		s, err := tok.SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rsaDER := w.rsa.N.Bytes()
	cases := map[string]string{
		"empty":                "",
		"two parts":            parts[0] + "." + parts[1],
		"four parts":           good + ".x",
		"no signature":         parts[0] + "." + parts[1] + ".",
		"a space":              good + " ",
		"a newline":            good + "\n",
		"padding":              parts[0] + "=." + parts[1] + "." + parts[2],
		"too long":             parts[0] + "." + parts[1] + strings.Repeat("A", 8<<10) + "." + parts[2],
		"changed claims":       parts[0] + "." + b64(strings.Replace(string(claimsText), "ann", "bob", 1)) + "." + parts[2],
		"cut signature":        good[:len(good)-2],
		"trailing bits":        good[:len(good)-1] + string(good[len(good)-1]+1),
		"not JSON":             again(`{"alg":"EdDSA"`, string(claimsText)),
		"header twice":         again(`{"alg":"none","alg":"EdDSA","kid":"ed"}`, string(claimsText)),
		"claims twice":         again(`{"alg":"EdDSA","kid":"ed"}`, strings.Replace(string(claimsText), `{`, `{"sub":"eve",`, 1)),
		"claims an array":      again(`{"alg":"EdDSA","kid":"ed"}`, `[]`),
		"claims null":          again(`{"alg":"EdDSA","kid":"ed"}`, `null`),
		"exp in capitals":      again(`{"alg":"EdDSA","kid":"ed"}`, strings.Replace(string(claimsText), `"exp"`, `"EXP"`, 1)),
		"alg in lower case":    again(`{"alg":"eddsa","kid":"ed"}`, string(claimsText)),
		"no alg":               again(`{"kid":"ed"}`, string(claimsText)),
		"alg a number":         again(`{"alg":1,"kid":"ed"}`, string(claimsText)),
		"none":                 b64(`{"alg":"none","kid":"ed"}`) + "." + parts[1] + ".AA",
		"none, mixed case":     b64(`{"alg":"nOnE","kid":"ed"}`) + "." + parts[1] + ".AA",
		"HS256 by public key":  w.sign(t, jwt.SigningMethodHS256, []byte(w.ed.Public().(ed25519.PublicKey)), m{"kid": "ed"}, nil),
		"HS256 by modulus":     w.sign(t, jwt.SigningMethodHS256, rsaDER, m{"kid": "rsa"}, nil),
		"PS256":                w.sign(t, jwt.SigningMethodPS256, w.rsa, m{"kid": "rsa"}, nil),
		"RS512":                w.sign(t, jwt.SigningMethodRS512, w.rsa, m{"kid": "rsa"}, nil),
		"another key's alg":    w.sign(t, jwt.SigningMethodES256, w.ec, m{"kid": "ed"}, nil),
		"crit":                 ed(m{"crit": []string{"exp"}}, nil),
		"crit empty":           ed(m{"crit": []string{}}, nil),
		"typ":                  ed(m{"typ": "secevent+jwt"}, nil),
		"workflows a text":     ed(nil, m{"workflows": "mail"}),
		"workflows of numbers": ed(nil, m{"workflows": []int{1}}),
		"typ a number":         ed(m{"typ": 1}, nil),
		"unknown kid":          ed(m{"kid": "nobody"}, nil),
		"no kid":               ed(m{"kid": nil}, nil),
		"kid a number":         ed(m{"kid": 1}, nil),
		"a stranger's key":     w.sign(t, jwt.SigningMethodEdDSA, stranger, nil, nil),
		"an issuer's alg":      w.sign(t, jwt.SigningMethodES256, w.ec, nil, m{"iss": "only-ed"}),
		"no iss":               ed(nil, m{"iss": nil}),
		"unknown iss":          ed(nil, m{"iss": "https://evil.example"}),
		"the platform's iss":   ed(nil, m{"iss": "carillon-test"}),
		"no aud":               ed(nil, m{"aud": nil}),
		"another aud":          ed(nil, m{"aud": "carillon2"}),
		"aud a number":         ed(nil, m{"aud": 1}),
		"no exp":               ed(nil, m{"exp": nil}),
		"exp a text":           ed(nil, m{"exp": "9999999999"}),
		"exp null":             again(`{"alg":"EdDSA","kid":"ed"}`, `{"iss":"`+acmeIssuer+`","aud":"carillon","sub":"a","tenant":"acme","exp":null}`),
		"exp huge":             again(`{"alg":"EdDSA","kid":"ed"}`, `{"iss":"`+acmeIssuer+`","aud":"carillon","sub":"a","tenant":"acme","exp":1e300}`),
		"expired":              ed(nil, m{"exp": w.now.Unix() - 31}),
		"exp far ahead":        ed(nil, m{"exp": w.now.Unix() + 86400 + 31}),
		"not yet":              ed(nil, m{"nbf": w.now.Unix() + 31}),
		"issued in future":     ed(nil, m{"iat": w.now.Unix() + 31}),
		"iat a text":           ed(nil, m{"iat": "now"}),
		"nbf a text":           ed(nil, m{"nbf": "now"}),
		"nbf huge":             ed(nil, m{"nbf": 1e300}),
		"nbf of 64 bits":       ed(nil, m{"nbf": uint64(1) << 63}),
		"nbf below all":        ed(nil, m{"nbf": -1e300}),
		"payload as it is":     ed(m{"b64": false}, nil),
		"no tenant":            ed(nil, m{"tenant": nil}),
		"tenant a number":      ed(nil, m{"tenant": 1}),
		"tenant empty":         ed(nil, m{"tenant": ""}),
		"another tenant":       ed(nil, m{"tenant": "other"}),
		"unknown tenant":       ed(nil, m{"tenant": "nobody"}),
		"tenant in capitals":   ed(nil, m{"tenant": "ACME"}),
		"no sub":               ed(nil, m{"sub": nil}),
		"sub empty":            ed(nil, m{"sub": ""}),
		"sub a number":         ed(nil, m{"sub": 7}),
		"sub with a newline":   ed(nil, m{"sub": "a\nb"}),
		"scope of numbers":     ed(nil, m{"scope": []int{1}}),
		"scope a number":       ed(nil, m{"scope": 1}),
		"minted with a list":   minted(m{"scope": []string{"platform:admin"}}, w.minter.private),
		"minted by another":    minted(nil, stranger),
		"minted too long":      minted(m{"exp": w.now.Unix() + 3601}, w.minter.private),
		"minted long ago":      minted(m{"iat": w.now.Unix() - 3000, "exp": w.now.Unix() + 1000}, w.minter.private),
		"minted without iat":   minted(m{"iat": nil}, w.minter.private),
		"minted for nobody":    minted(m{"tenant": "nobody"}, w.minter.private),
	}
	for name, token := range cases {
		who, err := w.verifier.Verify(t.Context(), token)
		if _, ok := errors.AsType[errToken](err); !ok {
			t.Errorf("%s: got %+v, %v", name, who, err)
		}
	}
}

// All refusals of a token that is not signed by a known key have the same
// text: no such tenant, issuer, key or algorithm, or a forged signature.
func TestRefusalsDoNotTellTenantsApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type m = map[string]any
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	forge := func(header, claims m) string { return w.sign(t, jwt.SigningMethodEdDSA, stranger, header, claims) }
	texts := map[string]string{}
	for name, token := range map[string]string{
		"a tenant and issuer that exist": forge(nil, nil),
		"a key that does not":            forge(m{"kid": "nobody"}, nil),
		"an issuer that does not":        forge(nil, m{"iss": "https://evil.example"}),
		"a tenant without issuers":       forge(nil, m{"tenant": "other"}),
		"a tenant that does not exist":   forge(nil, m{"tenant": "nobody"}),
		"an algorithm of no key":         w.sign(t, jwt.SigningMethodES256, w.ec, nil, m{"iss": "only-ed"}),
		"the platform's issuer":          forge(nil, m{"iss": "carillon-test"}),
	} {
		_, err := w.verifier.Verify(t.Context(), token)
		if err == nil {
			t.Fatalf("%s: it counts", name)
		}
		texts[err.Error()] += name + "; "
	}
	if len(texts) != 1 {
		t.Errorf("got several texts: %v", texts)
	}
}

// Two installations with one identity provider have audiences of their own: a token of one does not count in the other.
func TestAudienceIsTheInstallations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.verifier.VerifierOptions
	o.Audience = "carillon-staging"
	staging := NewVerifier(o)
	claims := Claims{Subject: "dev", Tenant: "acme", TTL: time.Hour}
	for audience, want := range map[string]bool{DefaultAudience: false, "carillon-staging": true} {
		token, err := w.minter.For(audience).Mint(claims, w.now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := staging.Verify(t.Context(), token); (err == nil) != want {
			t.Errorf("%s: got %v", audience, err)
		}
		if _, err := w.verifier.Verify(t.Context(), token); (err == nil) == want {
			t.Errorf("%s, elsewhere: got %v", audience, err)
		}
	}
}

// A forged token costs no more than three checks of a signature, however many keys its issuer has.
func TestForgedTokensAreCheckedAgainstFewKeys(t *testing.T) {
	t.Parallel()
	var keys []Key
	for range 50 {
		public, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, Key{ID: "same", Algorithm: edDSA, Public: public}, Key{ID: "", Algorithm: es256})
	}
	if n := len(candidates(keys, edDSA, "same", true)); n != mostCandidates {
		t.Errorf("got %d candidates, want %d", n, mostCandidates)
	}
}

func TestVerifySuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, err := w.minter.Mint(Claims{Subject: "dev", Tenant: "other", Scopes: TenantScopes(), TTL: time.Hour}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.verifier.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Put(t.Context(), w.pool, "other", Params{Status: Suspended}); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(cacheFor)
	w.verifier.Tenants.now = func() time.Time { return later }
	if _, err := w.verifier.Verify(t.Context(), token); err == nil {
		t.Error("a suspended tenant's token counts")
	}
}

func TestVerifyWithoutDatabaseIsNotTheTokensFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, err := w.minter.Mint(Claims{Subject: "dev", Tenant: "other", Scopes: nil, TTL: time.Hour}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.verifier.Verify(ctx, token)
	if _, ok := errors.AsType[errToken](err); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestMintRefusesLongLives(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []time.Duration{0, -time.Second, time.Hour + time.Second} {
		if _, err := NewIssuer(private, "x").Mint(Claims{TTL: ttl}, time.Now()); err == nil {
			t.Errorf("minted a token for %s", ttl)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := jwkset.NewJWKFromKey(private, jwkset.JWKOptions{Marshal: jwkset.JWKMarshalOptions{Private: true}})
	if err != nil {
		t.Fatal(err)
	}
	secretText, err := json.Marshal(secret.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	with := func(more string) string {
		return fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","x":"%s",%s}`, base64.RawURLEncoding.EncodeToString(public), more)
	}
	if k, err := ParseKey([]byte(with(`"kid":"a","alg":"EdDSA","use":"sig","key_ops":["verify"],"x5u":"https://evil.example"`))); err != nil || k.ID != "a" || k.Algorithm != "EdDSA" {
		t.Errorf("got %v, %v", k, err)
	}
	for _, bad := range []string{
		`{}`, `[]`, `"x"`, `{"kty":"oct","k":"c2VjcmV0"}`, string(secretText), string(jwkOf(t, "", small.Public())), string(jwkOf(t, "", p384.Public())),
		with(`"alg":"ES256"`), with(`"alg":"none"`), with(`"use":"enc"`), with(`"key_ops":["sign"]`),
		`{"kty":"OKP","crv":"Ed25519","x":"AAAA"}`, `{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}`, `{"kty":"RSA","n":"AQAB","e":"AQAB"}`, `{"kty":"OKP","crv":"X25519","x":"AAAA"}`,
	} {
		if k, err := ParseKey([]byte(bad)); err == nil {
			t.Errorf("%s: got %v", bad, k)
		}
	}
}
