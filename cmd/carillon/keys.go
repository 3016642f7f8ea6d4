package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/carillonhq/carillon/tenants"
)

// devIssuer is the issuer of the tokens that carillon dev mints. Other commands refuse it.
const devIssuer = "carillon-dev"

// issuerName is the name of the platform's issuer: the iss of its tokens.
type issuerName string

func (n *issuerName) UnmarshalText(text []byte) error {
	if string(text) == devIssuer {
		return fmt.Errorf("%s is the issuer of carillon dev, which gives a token to every program on its machine: choose another name", devIssuer)
	}
	*n = issuerName(text)
	return nil
}

// seed is an Ed25519 private key: 32 random bytes in base64.
type seed struct {
	given bool
	key   ed25519.PrivateKey
}

func (s *seed) UnmarshalText(text []byte) error {
	s.given = true
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(b) != ed25519.SeedSize {
		return fmt.Errorf("is not %d bytes in base64: make some with openssl rand -base64 %d", ed25519.SeedSize, ed25519.SeedSize)
	}
	s.key = ed25519.NewKeyFromSeed(b)
	return nil
}

// publicKeys is an array of JSON Web Keys, or a set (RFC 7517 section 5).
type publicKeys struct {
	given bool
	keys  []tenants.Key
}

func (k *publicKeys) UnmarshalText(text []byte) error {
	k.given = true
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		var set struct {
			Keys []json.RawMessage `json:"keys"`
		}
		if err := json.Unmarshal(text, &set); err != nil {
			return fmt.Errorf("is neither an array nor a set of JSON Web Keys")
		}
		list = set.Keys
	}
	if len(list) == 0 {
		return fmt.Errorf("holds no key")
	}
	for i, raw := range list {
		key, err := tenants.ParseKey(raw)
		if err != nil {
			return fmt.Errorf("key %d %w", i+1, err)
		}
		if key.ID == "" {
			return fmt.Errorf("key %d has no kid", i+1)
		}
		k.keys = append(k.keys, key)
	}
	return nil
}

// issuerSettings describe the platform's own issuer. Its tokens are valid for every tenant, and no other issuer can grant platform:admin.
type issuerSettings struct {
	Issuer     issuerName `env:"CARILLON_ISSUER" envDefault:"carillon" flag:"issuer" value:"NAME" help:"the name of the platform's own issuer: the iss of its tokens"`
	IssuerKey  seed       `env:"CARILLON_ISSUER_KEY" secret:"true" help:"the platform's private key: 32 random bytes in base64 (openssl rand -base64 32)"`
	IssuerKeys publicKeys `env:"CARILLON_ISSUER_KEYS" help:"further public keys of the platform's issuer, as a JSON Web Key Set"`
	Audience   audience   `env:"CARILLON_AUDIENCE" envDefault:"carillon" flag:"audience" value:"NAME" help:"the name that the aud of every token must contain; with a name of its own, an installation refuses the tokens of others"`
}

// audience is 1 to 512 bytes of text.
type audience string

func (a *audience) UnmarshalText(text []byte) error {
	if len(text) == 0 || len(text) > 512 || bytes.ContainsFunc(text, unicode.IsControl) {
		return errors.New("is not 1 to 512 bytes of text")
	}
	*a = audience(text)
	return nil
}

// verifying returns the keys that verify the platform's tokens.
func (s issuerSettings) verifying() []tenants.Key {
	keys := s.IssuerKeys.keys
	if s.IssuerKey.key != nil {
		keys = append(keys, s.minter().Key())
	}
	return keys
}

// minting returns the platform's issuer, or nil if this process does not have its private key.
func (s issuerSettings) minting() *tenants.Minter {
	if s.IssuerKey.key == nil {
		return nil
	}
	return new(s.minter())
}

func (s issuerSettings) minter() tenants.Minter {
	return tenants.NewIssuer(s.IssuerKey.key, string(s.Issuer)).For(string(s.Audience))
}
