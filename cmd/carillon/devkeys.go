package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// demoTenant is the tenant of the token that `carillon dev` prints.
const demoTenant = "demo"

// devKeys are the issuer, the keyset and the last tokens of one data folder. They are stored in dev.json, which only our user can read.
// So a token that was copied from one run works in the next.
type devKeys struct {
	mu   sync.Mutex
	file string // "": nothing is stored
	// keyset is the parsed kept.Keyset.
	keyset *keyset.Keyset
	kept   struct {
		Seed      []byte    `json:"issuer_key"`
		Keyset    string    `json:"keyset"`
		Tokens    devTokens `json:"tokens"`
		ExpiresAt time.Time `json:"expires_at"`
	}
}

// devTokens are the tokens in the ready file.
type devTokens struct {
	Token         string `json:"token"`
	PlatformToken string `json:"platform_token"`
}

func openDevKeys(dir string) (*devKeys, error) {
	k := &devKeys{}
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		k.file = filepath.Join(dir, "dev.json")
		text, err := os.ReadFile(k.file)
		if err == nil {
			err = json.Unmarshal(text, &k.kept)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the keys of carillon dev cannot be read; remove %s to get new ones: %w", k.file, err)
		}
	}
	made, err := k.complete()
	if err != nil {
		return nil, fmt.Errorf("the keys of carillon dev cannot be used; remove %s to get new ones: %w", k.file, err)
	}
	if !made {
		return k, nil
	}
	return k, k.save()
}

// complete makes the missing keys: all of them, or those that an older version did not know.
func (k *devKeys) complete() (made bool, err error) {
	if len(k.kept.Seed) != ed25519.SeedSize {
		k.kept.Seed = make([]byte, ed25519.SeedSize)
		rand.Read(k.kept.Seed) // it never fails
		k.kept.Tokens, k.kept.ExpiresAt = devTokens{}, time.Time{}
		made = true
	}
	if k.kept.Keyset != "" {
		k.keyset, err = keyset.Parse(k.kept.Keyset)
		return made, err
	}
	if k.keyset, err = keyset.New(); err != nil {
		return false, err
	}
	k.kept.Keyset, err = k.keyset.Text()
	return true, err
}

func (k *devKeys) save() error {
	if k.file == "" {
		return nil
	}
	text, err := json.MarshalIndent(k.kept, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(k.file, append(text, '\n'))
}

// replaceFile replaces a file atomically: a reader sees the whole old content or the whole new one.
func replaceFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // only our user can read it
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// sealing returns the keyset that encrypts secrets. It returns nil if the database remains after this run but the keyset does not.
func (k *devKeys) sealing(ownDatabase bool) *keyset.Keyset {
	if k.file == "" && !ownDatabase {
		return nil
	}
	return k.keyset
}

func (k *devKeys) minter() tenants.Minter {
	return tenants.NewIssuer(ed25519.NewKeyFromSeed(k.kept.Seed), devIssuer)
}

// renewBefore is the least remaining lifetime of the tokens in the ready file.
const renewBefore = 30 * time.Minute

// tokens returns the last tokens while they are valid for at least renewBefore, and else new ones.
func (k *devKeys) tokens(now time.Time) (devTokens, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Add(renewBefore).Before(k.kept.ExpiresAt) {
		return k.kept.Tokens, nil
	}
	token, err := k.minter().Mint(tenants.Claims{Subject: "dev", Tenant: demoTenant, Scopes: tenants.TenantScopes(), TTL: tenants.MaxTTL}, now)
	if err != nil {
		return devTokens{}, err
	}
	platform, err := k.minter().Mint(tenants.Claims{Subject: "dev", Scopes: []string{tenants.PlatformAdmin}, TTL: tenants.MaxTTL}, now)
	if err != nil {
		return devTokens{}, err
	}
	k.kept.Tokens, k.kept.ExpiresAt = devTokens{token, platform}, now.Add(tenants.MaxTTL)
	return k.kept.Tokens, k.save()
}

// tokenPath is the path at which `carillon token` gets tokens. It is not part of the API.
const tokenPath = "/dev/token"

// tokenRequest is the request of `carillon token`.
type tokenRequest struct {
	Tenant string `json:"tenant"` // "" for platform:admin
	Scope  string `json:"scope"`
	TTL    string `json:"ttl"`
}

// endpoint returns a handler that mints tokens at tokenPath and passes other requests to next. It answers only programs on this machine:
// a browser sends Origin, and after DNS rebinding a page sends another Host.
func (k *devKeys) endpoint(db *pgxpool.Pool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != tokenPath {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodPost || r.Header.Get("Origin") != "" || !local(r.Host) || !local(r.RemoteAddr) {
			http.Error(w, "only programs on this machine can get tokens, by POST without Origin", http.StatusForbidden)
			return
		}
		var ask tokenRequest
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&ask); err != nil {
			http.Error(w, "the body is not a token request: "+err.Error(), http.StatusBadRequest)
			return
		}
		token, err := k.mint(r.Context(), db, ask, time.Now())
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		fmt.Fprintln(w, token)
	})
}

func local(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return address(net.JoinHostPort(host, "0")).loopback()
}

// mint creates the tenant if it does not exist, and returns a token for it.
func (k *devKeys) mint(ctx context.Context, db *pgxpool.Pool, ask tokenRequest, now time.Time) (string, error) {
	claims, err := ask.claims()
	if err != nil {
		return "", err
	}
	if claims.Tenant != "" {
		if _, err := tenants.Ensure(ctx, db, claims.Tenant, tenants.Defaults()); err != nil {
			return "", fmt.Errorf("tenant %s: %w", claims.Tenant, err)
		}
	}
	return k.minter().Mint(claims, now)
}

// claims returns the claims of the requested token, or an error if no verifier would accept them.
func (a tokenRequest) claims() (tenants.Claims, error) {
	ttl, err := time.ParseDuration(a.TTL)
	if err != nil {
		return tenants.Claims{}, fmt.Errorf("%q is not a duration such as 5m", a.TTL)
	}
	scopes := strings.Fields(a.Scope)
	for _, scope := range scopes {
		if scope != tenants.PlatformAdmin && !slices.Contains(tenants.TenantScopes(), scope) {
			return tenants.Claims{}, fmt.Errorf("there is no scope %q: the scopes are %s and %s", scope, strings.Join(tenants.TenantScopes(), ", "), tenants.PlatformAdmin)
		}
	}
	if a.Tenant != "" && !web.IsName(a.Tenant) {
		return tenants.Claims{}, fmt.Errorf("a tenant's name is 1 to 128 of A-Z a-z 0-9 . _ -, not %q", a.Tenant)
	}
	return tenants.Claims{Subject: "dev", Tenant: a.Tenant, Scopes: scopes, TTL: ttl}, nil
}
