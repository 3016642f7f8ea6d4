package tenants

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/internal/web"
)

// Bounds of a token.
const (
	maxToken   = 8 << 10
	leeway     = 30 * time.Second
	maxAhead   = 24 * time.Hour // exp of a tenant's issuer, from now
	maxSubject = 256
)

// VerifierOptions are what a Verifier knows beside the token.
type VerifierOptions struct {
	Issuer   string     // the platform's own issuer: the only one that platform:admin counts from
	Keys     []Key      // its keys
	Tenants  *Directory // whose issuers are the others
	Outbound web.Outbound
	Audience string           // what a token's aud must hold; empty: DefaultAudience
	Now      func() time.Time // nil: time.Now
}

// Verifier tells who a token is of. It counts only as security demands: every check has its place in Verify.
type Verifier struct {
	VerifierOptions
	parser    *jwt.Parser
	published *published
	proven    *lru.Cache[[32]byte, any]
}

// NewVerifier returns a Verifier. The keys of the platform's issuer, where it has several, must have ids.
func NewVerifier(o VerifierOptions) *Verifier {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Audience == "" {
		o.Audience = DefaultAudience
	}
	return &Verifier{
		VerifierOptions: o,
		parser: jwt.NewParser(
			jwt.WithValidMethods(algorithms()),
			jwt.WithAudience(o.Audience),
			jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(),
			jwt.WithLeeway(leeway),
			jwt.WithStrictDecoding(),
			jwt.WithTimeFunc(o.Now),
		),
		published: newPublished(o.Outbound),
		proven:    newProven(),
	}
}

// errToken is why a token does not count. Its text may be shown: it never says whether a tenant exists.
type errToken struct{ reason string }

func (e errToken) Error() string { return e.reason }

func refuse(format string, args ...any) error { return errToken{fmt.Sprintf(format, args...)} }

// threeParts tells whether a text is three parts of base64url with dots between them, none of them empty.
func threeParts(text string) bool {
	dots, part := 0, 0
	for _, c := range []byte(text) {
		switch {
		case c == '.' && part > 0:
			dots, part = dots+1, 0
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			part++
		default:
			return false
		}
	}
	return dots == 2 && part > 0
}

// Verify says who a token is of, as of now. An error that is not the token's own, such as a database that is away, is
// returned as it is.
func (v *Verifier) Verify(ctx context.Context, token string) (Identity, error) {
	if len(token) > maxToken {
		return Identity{}, refuse("the token is longer than %d bytes", maxToken)
	}
	if !threeParts(token) {
		return Identity{}, refuse("the token is not three parts of base64url")
	}
	if err := strictParts(token); err != nil {
		return Identity{}, err
	}
	var who bearer
	var stopped error         // why there is no key: the parser hides it among its own
	claims := jwt.MapClaims{} // a map, since members of a struct are matched in any case
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (keys any, err error) {
		defer func() { stopped = err }()
		if err := header(t.Header); err != nil {
			return nil, err
		}
		if who, err = v.bearer(ctx, claims); err != nil {
			return nil, err
		}
		t.Method = proven{t.Method, v.proven}
		return v.keys(ctx, who, t)
	})
	if stopped != nil {
		return Identity{}, stopped
	}
	if err != nil {
		return Identity{}, refuse("%s", reason(err))
	}
	if err := v.lifetime(claims, who); err != nil {
		return Identity{}, err
	}
	if who.platform && who.named {
		if who.tenant, err = v.Tenants.named(ctx, who.name, true); err != nil {
			return Identity{}, err
		}
	}
	i, err := identity(claims, who)
	if err != nil {
		return Identity{}, err
	}
	if i.Workflows, err = workflowsOf(claims); err != nil {
		return Identity{}, err
	}
	if who.platform {
		if err := v.keyCounts(ctx, i, claims); err != nil {
			return Identity{}, err
		}
	}
	return i, nil
}

// workflowsOf returns the workflows that a token is limited to, whoever issued it; nil: it is good for all.
func workflowsOf(claims jwt.MapClaims) ([]string, error) {
	claim, there := claims["workflows"]
	if !there {
		return nil, nil
	}
	all, ok := claim.([]any)
	if !ok {
		return nil, refuse("the token's workflows are not a list")
	}
	names := []string{}
	for _, one := range all {
		name, ok := one.(string)
		if !ok {
			return nil, refuse("the token's workflows are not names")
		}
		names = append(names, name)
	}
	return names, nil
}

// keyCounts refuses a token that was minted for an API key which counts no longer.
func (v *Verifier) keyCounts(ctx context.Context, i Identity, claims jwt.MapClaims) error {
	key, there := claims["api_key"]
	if !there {
		return nil
	}
	id, ok := key.(string)
	if !ok {
		return refuse("the token's api_key is not a text")
	}
	lives, err := v.Tenants.keyLives(ctx, i.Tenant, id)
	if err != nil {
		return err
	}
	if !lives {
		return refuse("the token's API key counts no longer")
	}
	return nil
}

// strictParts refuses a header and claims that two readers may read differently.
func strictParts(token string) error {
	for _, part := range strings.Split(token, ".")[:2] {
		b, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || web.CheckJSON(b) != nil || b[0] != '{' {
			return refuse("the token is not JSON in base64url")
		}
	}
	return nil
}

// header checks what must be so whoever signed. jku, x5u, x5c and jwk are not looked at: keys come from the issuer.
func header(h map[string]any) error {
	if _, ok := h["crit"]; ok {
		return refuse("the token has critical extensions, and none is known")
	}
	if b64, ok := h["b64"]; ok && b64 != true { // RFC 7797 section 7
		return refuse("the token's payload is not in base64url")
	}
	if typ, ok := h["typ"]; ok && !isTokenType(typ) {
		return refuse("the token is of another type")
	}
	if kid, ok := h["kid"]; ok {
		if _, text := kid.(string); !text {
			return refuse("the token's kid is not a text")
		}
	}
	return nil
}

// isTokenType reports whether a header's typ is that of a JSON Web Token (RFC 7519 section 5.1) or of an access token (RFC
// 9068 section 4). It is a media type: its case does not matter, and it may leave out "application/" (RFC 7515 section 4.1.9).
func isTokenType(typ any) bool {
	text, ok := typ.(string)
	if !ok {
		return false
	}
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return text == "jwt" || text == "at+jwt"
}

// unsigned refuses a token that no key of its issuer has signed. Whether the tenant, the issuer or the key is unknown, or
// only the signature is wrong, the text is the same: else a stranger could learn which tenants and issuers exist.
func unsigned() error { return refuse("the token is not signed by a known key of its issuer") }

// bearer is whose token it is by its own word: which issuer, and of which tenant. The signature proves it afterwards.
type bearer struct {
	platform bool
	tenant   Tenant  // zero where the token names none, or one that is not there
	name     string  // of the tenant
	named    bool    // the token names a tenant
	issuer   *Issuer // nil for the platform's
}

func (v *Verifier) bearer(ctx context.Context, claims jwt.MapClaims) (who bearer, err error) {
	iss, ok := claims["iss"].(string)
	if !ok || iss == "" {
		return who, refuse("the token has no iss")
	}
	name, named := claims["tenant"].(string)
	if _, there := claims["tenant"]; there && !named || named && name == "" {
		return who, refuse("the token's tenant is not a name")
	}
	who.name, who.named, who.platform = name, named, iss == v.Issuer
	if who.platform { // the tenant is looked up once the signature is verified
		return who, nil
	}
	if named {
		if who.tenant, err = v.Tenants.named(ctx, name, false); err != nil {
			return who, err
		}
	}
	i := slices.IndexFunc(who.tenant.Issuers, func(i Issuer) bool { return i.Name == iss })
	if i < 0 {
		return who, unsigned()
	}
	who.issuer = &who.tenant.Issuers[i]
	return who, nil
}

// keys are those that may have signed the token: one key is good for one algorithm.
func (v *Verifier) keys(ctx context.Context, who bearer, t *jwt.Token) (any, error) {
	kid, hasKid := t.Header["kid"].(string)
	fit := func(keys []Key) []Key { return candidates(keys, t.Method.Alg(), kid, hasKid) }
	var found []Key
	switch {
	case who.platform:
		found = fit(v.Keys)
	case !who.issuer.allows(t.Method.Alg()):
		return nil, unsigned()
	case who.issuer.JWKSURI == "":
		found = fit(who.issuer.keys)
	default:
		var err error
		if found, err = v.published.keys(ctx, who.issuer.JWKSURI, fit, v.Now()); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, unsigned()
	}
	var set jwt.VerificationKeySet
	for _, k := range found {
		set.Keys = append(set.Keys, k.Public)
	}
	return set, nil
}

// reason says why the parser refuses a token, in words that may be shown.
func reason(err error) string {
	if errors.Is(err, jwt.ErrTokenSignatureInvalid) && !errors.Is(err, jwt.ErrTokenMalformed) {
		return unsigned().Error()
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{jwt.ErrTokenMalformed, "the token is not a JSON Web Token"},
		{jwt.ErrTokenUnverifiable, "the token's algorithm is not known"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "the token was issued in the future"},
		{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks a claim that is required"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	return "the token has a claim that cannot be"
}

// lifetime refuses a token that lives too long, so that one which leaks does not.
func (v *Verifier) lifetime(claims jwt.MapClaims, who bearer) error {
	exp, ok := seconds(claims, "exp")
	if !ok {
		return refuse("the token's exp is not a time")
	}
	iat, issued := seconds(claims, "iat")
	if _, there := claims["iat"]; there && !issued {
		return refuse("the token's iat is not a time")
	}
	if _, there := claims["nbf"]; there {
		if _, ok := seconds(claims, "nbf"); !ok { // the parser turns one that is too large into one long past
			return refuse("the token's nbf is not a time")
		}
	}
	if who.platform {
		if !issued || exp-iat > MaxTTL.Seconds() {
			return refuse("the token lives longer than %s", MaxTTL)
		}
		return nil
	}
	if exp-float64(v.Now().Unix()) > (maxAhead + leeway).Seconds() { // the issuer's clock may be ahead of ours
		return refuse("the token lives longer than %s", maxAhead)
	}
	return nil
}

// seconds is a claim that is a time: seconds since 1970 (RFC 7519 section 2), of this millennium.
func seconds(claims jwt.MapClaims, name string) (float64, bool) {
	n, ok := claims[name].(float64)
	return n, ok && n >= 0 && n < 1<<35 && !math.IsNaN(n)
}

func identity(claims jwt.MapClaims, who bearer) (Identity, error) {
	sub, ok := claims["sub"].(string)
	if !ok || sub == "" || len(sub) > maxSubject || strings.ContainsFunc(sub, unicode.IsControl) {
		return Identity{}, refuse("the token's sub is not 1 to %d bytes of text", maxSubject)
	}
	if who.named && who.tenant.Status != Active {
		return Identity{}, refuse("the token's tenant is not active")
	}
	scope, ok := claims["scope"].(string)
	if _, there := claims["scope"]; there && !ok {
		return Identity{}, refuse("the token's scope is not a text")
	}
	scopes := scopesOf(scope)
	platform := who.platform && !who.named && slices.Contains(scopes, PlatformAdmin)
	if !platform {
		scopes = slices.DeleteFunc(scopes, func(s string) bool { return s == PlatformAdmin })
	}
	return Identity{
		Tenant:     who.tenant.ID,
		TenantName: who.tenant.Name,
		Subject:    sub,
		Scopes:     scopes,
		Platform:   platform,
	}, nil
}
