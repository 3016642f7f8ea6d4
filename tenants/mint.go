package tenants

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultAudience is the required aud of a token, unless the installation has its own audience.
const DefaultAudience = "carillon"

// MaxTTL is the maximum lifetime of a token of the platform's own issuer.
const MaxTTL = time.Hour

// Minter is the platform's own issuer. It signs short-lived tokens.
type Minter struct {
	name     string
	kid      string
	audience string
	private  ed25519.PrivateKey
}

// NewIssuer returns a Minter for the issuer of that name. Its tokens contain the id of its public key, and have the default audience.
func NewIssuer(key ed25519.PrivateKey, name string) Minter {
	sum := sha256.Sum256(key.Public().(ed25519.PublicKey))
	return Minter{name, base64.RawURLEncoding.EncodeToString(sum[:12]), DefaultAudience, key}
}

// For returns a Minter with the same issuer and key, for another audience.
func (m Minter) For(audience string) Minter {
	m.audience = audience
	return m
}

// Name returns the issuer's name, which is the iss of its tokens.
func (m Minter) Name() string { return m.name }

// Key returns the key that verifies the tokens.
func (m Minter) Key() Key {
	return Key{ID: m.kid, Algorithm: edDSA, Public: m.private.Public()}
}

// Claims are the claims of a token. Tenant is "" for a token with platform:admin only.
type Claims struct {
	Subject string
	Tenant  string
	Scopes  []string
	TTL     time.Duration

	APIKey    string   // the API key that it was exchanged for; the token is valid only while the key exists
	Workflows []string // the token is limited to these; nil: not limited
}

// Mint returns a signed token that is valid from now for c.TTL, which is at most MaxTTL.
func (m Minter) Mint(c Claims, now time.Time) (string, error) {
	if c.TTL < time.Second || c.TTL > MaxTTL {
		return "", fmt.Errorf("the lifetime of a token is 1s to %s, not %s", MaxTTL, c.TTL)
	}
	claims := jwt.MapClaims{
		"iss": m.name, "aud": m.audience, "sub": c.Subject, "scope": strings.Join(c.Scopes, " "), "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Unix() + int64(c.TTL/time.Second),
	}
	if c.Tenant != "" {
		claims["tenant"] = c.Tenant
	}
	if c.APIKey != "" {
		claims["api_key"] = c.APIKey
	}
	if c.Workflows != nil {
		claims["workflows"] = c.Workflows
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	t.Header["kid"] = m.kid
	return t.SignedString(m.private)
}
