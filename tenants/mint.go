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

// DefaultAudience is what a token's aud must hold, unless the installation has an audience of its own.
const DefaultAudience = "carillon"

// MaxTTL is how long a token of the platform's own issuer lives at most.
const MaxTTL = time.Hour

// Minter is the platform's own issuer: it signs short tokens.
type Minter struct {
	name     string
	kid      string
	audience string
	private  ed25519.PrivateKey
}

// NewIssuer returns a Minter whose tokens carry that issuer's name, the id of its public key and the default audience.
func NewIssuer(key ed25519.PrivateKey, name string) Minter {
	sum := sha256.Sum256(key.Public().(ed25519.PublicKey))
	return Minter{name, base64.RawURLEncoding.EncodeToString(sum[:12]), DefaultAudience, key}
}

// For returns a Minter of the same issuer and key whose tokens are for another audience.
func (m Minter) For(audience string) Minter {
	m.audience = audience
	return m
}

// Name is the issuer's name, a token's iss.
func (m Minter) Name() string { return m.name }

// Key is what verifies the tokens.
func (m Minter) Key() Key {
	return Key{ID: m.kid, Algorithm: edDSA, Public: m.private.Public()}
}

// Claims are what a token is to say. Tenant is "" for platform:admin only.
type Claims struct {
	Subject string
	Tenant  string
	Scopes  []string
	TTL     time.Duration

	APIKey    string   // the key that it was exchanged for: it counts while that does
	Workflows []string // the only ones that it is good for; nil: all
}

// Mint signs a token that is valid from now on for c.TTL, which is at most MaxTTL.
func (m Minter) Mint(c Claims, now time.Time) (string, error) {
	if c.TTL < time.Second || c.TTL > MaxTTL {
		return "", fmt.Errorf("a token lives from 1s to %s, not %s", MaxTTL, c.TTL)
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
