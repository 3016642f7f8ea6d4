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

// demoTenant is whose token `carillon dev` prints.
const demoTenant = "demo"

// devKeys are the issuer and the keyset of one data folder, and the tokens it gave out last, so that what was copied from one run works
// in the next. They are kept in dev.json, readable by us alone.
type devKeys struct {
	mu   sync.Mutex
	file string // "": nothing is kept
	// keyset is what kept.Keyset says.
	keyset *keyset.Keyset
	kept   struct {
		Seed      []byte    `json:"issuer_key"`
		Keyset    string    `json:"keyset"`
		Tokens    devTokens `json:"tokens"`
		ExpiresAt time.Time `json:"expires_at"`
	}
}

// devTokens are those that the ready file holds.
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
			return nil, fmt.Errorf("the keys of carillon dev cannot be read, remove %s to have new ones: %w", k.file, err)
		}
	}
	made, err := k.complete()
	if err != nil {
		return nil, fmt.Errorf("the keys of carillon dev cannot be used, remove %s to have new ones: %w", k.file, err)
	}
	if !made {
		return k, nil
	}
	return k, k.save()
}

// complete makes the keys that are not there: all of them, or those that an older version did not know.
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

// replaceFile writes a file so that a reader sees the old or the new one, whole.
func replaceFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // it is readable by us alone
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

// sealing is the keyset; none where the database outlives it.
func (k *devKeys) sealing(ownDatabase bool) *keyset.Keyset {
	if k.file == "" && !ownDatabase {
		return nil
	}
	return k.keyset
}

func (k *devKeys) minter() tenants.Minter {
	return tenants.NewIssuer(ed25519.NewKeyFromSeed(k.kept.Seed), devIssuer)
}

// renewBefore is how long the tokens of the ready file work at least.
const renewBefore = 30 * time.Minute

// tokens returns the last ones while they are good for long enough.
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

// tokenPath is where `carillon token` asks. It is no part of the API.
const tokenPath = "/dev/token"

// tokenRequest is what `carillon token` asks for.
type tokenRequest struct {
	Tenant string `json:"tenant"` // "" for platform:admin
	Scope  string `json:"scope"`
	TTL    string `json:"ttl"`
}

// endpoint puts the minting of tokens before a handler. It answers programs on this machine only: a browser sends
// Origin, and a page whose name was pointed at us has another Host.
func (k *devKeys) endpoint(db *pgxpool.Pool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != tokenPath {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodPost || r.Header.Get("Origin") != "" || !local(r.Host) || !local(r.RemoteAddr) {
			http.Error(w, "only programs on this machine get tokens, by POST", http.StatusForbidden)
			return
		}
		var ask tokenRequest
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&ask); err != nil {
			http.Error(w, "the request is not understood: "+err.Error(), http.StatusBadRequest)
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

// mint makes the tenant where it is not there yet.
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

// claims refuses what no verifier would let pass.
func (a tokenRequest) claims() (tenants.Claims, error) {
	ttl, err := time.ParseDuration(a.TTL)
	if err != nil {
		return tenants.Claims{}, fmt.Errorf("%q is not a duration such as 5m", a.TTL)
	}
	scopes := strings.Fields(a.Scope)
	for _, scope := range scopes {
		if scope != tenants.PlatformAdmin && !slices.Contains(tenants.TenantScopes(), scope) {
			return tenants.Claims{}, fmt.Errorf("there is no scope %q: there are %s and %s", scope, strings.Join(tenants.TenantScopes(), ", "), tenants.PlatformAdmin)
		}
	}
	if a.Tenant != "" && !web.IsName(a.Tenant) {
		return tenants.Claims{}, fmt.Errorf("a tenant's name is 1 to 128 of A-Z a-z 0-9 . _ -, not %q", a.Tenant)
	}
	return tenants.Claims{Subject: "dev", Tenant: a.Tenant, Scopes: scopes, TTL: ttl}, nil
}
