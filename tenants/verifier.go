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

// The bounds of a token.
const (
	maxToken   = 8 << 10
	leeway     = 30 * time.Second
	maxAhead   = 24 * time.Hour // from now to the exp of a token of a tenant's issuer
	maxSubject = 256
)

// VerifierOptions configure a Verifier.
type VerifierOptions struct {
	Issuer   string     // the platform's own issuer, the only one that may grant platform:admin
	Keys     []Key      // of the platform's issuer
	Tenants  *Directory // of the tenants, which have their own issuers
	Outbound web.Outbound
	Audience string           // the required aud of a token; "": DefaultAudience
	Now      func() time.Time // nil: time.Now
}

// Verifier checks tokens. Verify lists all checks in order.
type Verifier struct {
	VerifierOptions
	parser    *jwt.Parser
	published *published
	verified  *lru.Cache[[32]byte, any] // signatures
}

// NewVerifier returns a Verifier. If the platform's issuer has several keys, they must have ids.
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
			jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(),
			jwt.WithLeeway(leeway),
			jwt.WithStrictDecoding(),
			jwt.WithTimeFunc(o.Now),
		),
		published: newPublished(o.Outbound),
		verified:  newSignatureCache(),
	}
}

// errToken is the reason why a token is invalid. The client may see its text, which never reveals whether a tenant exists.
type errToken struct{ reason string }

func (e errToken) Error() string { return e.reason }

func refuse(format string, args ...any) error { return errToken{fmt.Sprintf(format, args...)} }

// threeParts reports whether a text consists of three non-empty parts of base64url, separated by dots.
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

// Verify checks a token and returns its identity. It returns an errToken for an invalid token, and any other error unchanged, such as
// that of an unreachable database.
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
	var stopped error         // the error of the key function, which the parser wraps in its own
	claims := jwt.MapClaims{} // a map, because struct members match names in any case
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (keys any, err error) {
		defer func() { stopped = err }()
		if err := header(t.Header); err != nil {
			return nil, err
		}
		if who, err = v.bearer(ctx, claims); err != nil {
			return nil, err
		}
		t.Method = cachedMethod{t.Method, v.verified}
		return v.keys(ctx, who, t)
	})
	if stopped != nil {
		return Identity{}, stopped
	}
	if err != nil {
		return Identity{}, refuse("%s", reason(err))
	}
	if err := v.audience(claims, who); err != nil {
		return Identity{}, err
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
	if i.Workflows, err = workflowsOf(claims, who.issuer.names().Workflows); err != nil {
		return Identity{}, err
	}
	exp, _ := seconds(claims, "exp")
	i.ExpiresAt = new(time.Unix(int64(exp), 0).UTC())
	if who.platform {
		if err := v.keyCounts(ctx, i, claims); err != nil {
			return Identity{}, err
		}
	}
	return i, nil
}

// workflowsOf returns the workflows that a token of any issuer is limited to; nil: it is not limited.
func workflowsOf(claims jwt.MapClaims, name string) ([]string, error) {
	claim, there := claims[name]
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

// keyCounts returns an error for a token of an API key that was deleted or has expired.
func (v *Verifier) keyCounts(ctx context.Context, i Identity, claims jwt.MapClaims) error {
	key, there := claims["api_key"]
	if !there {
		return nil
	}
	id, ok := key.(string)
	if !ok {
		return refuse("the token's api_key is not a string")
	}
	lives, err := v.Tenants.keyLives(ctx, i.Tenant, id)
	if err != nil {
		return err
	}
	if !lives {
		return refuse("the token's API key is no longer valid")
	}
	return nil
}

// strictParts refuses a header or claims that two JSON parsers could read differently.
func strictParts(token string) error {
	for _, part := range strings.Split(token, ".")[:2] {
		b, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || web.CheckJSON(b) != nil || b[0] != '{' {
			return refuse("the token is not JSON in base64url")
		}
	}
	return nil
}

// header checks the header, for every issuer. It ignores jku, x5u, x5c and jwk, because keys come from the issuer only.
func header(h map[string]any) error {
	if _, ok := h["crit"]; ok {
		return refuse("the token has critical extensions, and none is known")
	}
	if b64, ok := h["b64"]; ok && b64 != true { // RFC 7797 section 7
		return refuse("the token's payload is not in base64url")
	}
	if typ, ok := h["typ"]; ok && !isTokenType(typ) {
		return refuse("the token has another type")
	}
	if kid, ok := h["kid"]; ok {
		if _, text := kid.(string); !text {
			return refuse("the token's kid is not a string")
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

// keys returns the keys that may have signed the token. Each key has one algorithm.
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

// reason returns the parser's reason to refuse a token, as a text for the client.
func reason(err error) string {
	if errors.Is(err, jwt.ErrTokenSignatureInvalid) && !errors.Is(err, jwt.ErrTokenMalformed) {
		return unsigned().Error()
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{jwt.ErrTokenMalformed, "the token is not a JSON Web Token"},
		{jwt.ErrTokenUnverifiable, "the token's algorithm is unknown"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "the token was issued in the future"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks a required claim"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	return "the token has an invalid claim"
}

// lifetime refuses a token with a long lifetime, so that a leaked token soon becomes useless.
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
		if _, ok := seconds(claims, "nbf"); !ok { // the parser reads a too large nbf as a past time
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

// seconds returns a claim that is a time in seconds since 1970 (RFC 7519 section 2). It refuses times far in the future.
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
	scopes, err := who.scopes(claims)
	if err != nil {
		return Identity{}, err
	}
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
