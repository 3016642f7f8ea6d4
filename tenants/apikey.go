package tenants

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// Credentials creates, rotates and deletes the API keys of tenants, and exchanges them for tokens.
type Credentials struct {
	DB        postgres.DB
	Cursors   *web.Cursor
	Directory *Directory
	Limits    *Limits
	Minter    *Minter // nil: the process has no private key of the platform's issuer, and exchanges no key
}

// APIKey is a long-lived credential of a tenant. A client sends it with each request, or exchanges it for short-lived tokens. Key is the
// credential itself; only the answer to its creation or rotation contains it.
type APIKey struct {
	ID                string     `json:"id"`
	Name              string     `json:"name"`
	Scopes            []string   `json:"scopes"`
	Workflows         []string   `json:"workflows"` // the key is limited to these; null: not limited
	ExpiresAt         *time.Time `json:"expires_at"`
	PreviousExpiresAt *time.Time `json:"previous_expires_at"` // the end of the previous key, which a rotation replaced; null: there is none
	LastUsedAt        *time.Time `json:"last_used_at"`        // up to a minute late; null: never
	CreatedAt         time.Time  `json:"created_at"`
	CreatedBy         string     `json:"created_by"`
	Key               string     `json:"key,omitempty" db:"-"`
}

// APIKeyParams is the request to create an API key.
type APIKeyParams struct {
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	Workflows []string   `json:"workflows,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" null:"yes"`
}

const (
	maxKeyName      = 128
	maxKeyWorkflows = 100
)

func (p APIKeyParams) check(now time.Time) error {
	var bad []error
	if p.Name == "" || len(p.Name) > maxKeyName || !utf8.ValidString(p.Name) || strings.ContainsFunc(p.Name, unicode.IsControl) {
		bad = append(bad, fault.Invalid("/name", "must be 1 to %d bytes of text", maxKeyName))
	}
	if len(p.Scopes) == 0 {
		bad = append(bad, fault.Invalid("/scopes", "must be some of %s", strings.Join(TenantScopes(), ", ")))
	}
	for n, scope := range p.Scopes {
		at := "/scopes/" + strconv.Itoa(n)
		if !slices.Contains(TenantScopes(), scope) {
			bad = append(bad, fault.Invalid(at, "must be one of %s", strings.Join(TenantScopes(), ", ")))
		}
		if slices.Contains(p.Scopes[:n], scope) {
			bad = append(bad, fault.Invalid(at, "appears twice"))
		}
		if scope == TenantAdmin && p.Workflows != nil {
			bad = append(bad, fault.Invalid(at, "an operator's key cannot be limited to workflows"))
		}
	}
	if p.Workflows != nil && (len(p.Workflows) == 0 || len(p.Workflows) > maxKeyWorkflows) {
		bad = append(bad, fault.Invalid("/workflows", "must be 1 to %d workflows, or be left out", maxKeyWorkflows))
	}
	for n, workflow := range p.Workflows {
		if !web.IsName(workflow) {
			bad = append(bad, fault.Invalid("/workflows/"+strconv.Itoa(n), "a workflow's name is 1 to 128 of A-Z a-z 0-9 . _ -"))
		}
	}
	if p.ExpiresAt != nil && !p.ExpiresAt.After(now) {
		bad = append(bad, fault.Invalid("/expires_at", "must be in the future"))
	}
	return fault.Join(bad...)
}

// A key is a prefix, random letters and a checksum. The prefix lets scanners detect leaked keys. The checksum refuses mistyped keys
// without a database query.
const (
	keyPrefix = "carillon_key_"
	keyRandom = 52 // letters of base32: 260 bits
)

func newKey() string {
	random := rand.Text() + rand.Text()
	return keyPrefix + random + checksum(random)
}

func checksum(random string) string {
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(random)))
}

func wellFormed(key string) bool {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	return ok && len(rest) == keyRandom+8 && checksum(rest[:keyRandom]) == rest[keyRandom:]
}

func hashOf(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

const keyColumns = `id, name, scopes, workflows, expires_at,
	CASE WHEN previous_expires_at > ` + postgres.Now + ` THEN previous_expires_at END AS previous_expires_at, last_used_at, created_at, created_by`

// keyOverlap is how long the previous key stays valid after a rotation.
const keyOverlap = 24 * time.Hour

// Make creates an API key for the caller's tenant, within its quota. The value of a replayed request has no Key, because the key itself
// is never stored.
func (r Credentials) Make(ctx context.Context, who Identity, p APIKeyParams, now time.Time, request once.Request) (k APIKey, replayed bool, err error) {
	q, err := r.Directory.Quotas(ctx, who.Tenant)
	if err != nil {
		return k, false, err
	}
	return r.issue(ctx, who, "api_key.make", request, func(tx pgx.Tx) (APIKey, error) {
		return newAPIKey(ctx, tx, who, p, q.APIKeys, now)
	})
}

// Rotate gives an API key of the caller's tenant a new secret. The previous secret stays valid for keyOverlap; an older one becomes
// invalid. The value of a replayed request has no Key.
func (r Credentials) Rotate(ctx context.Context, who Identity, id string, request once.Request) (k APIKey, replayed bool, err error) {
	return r.issue(ctx, who, "api_key.rotate", request, func(tx pgx.Tx) (APIKey, error) {
		return rotateAPIKey(ctx, tx, who.Tenant, id)
	})
}

// issue runs a change that makes a credential, at most once, and audits it. It returns the credential and does not store it.
func (r Credentials) issue(ctx context.Context, who Identity, action string, request once.Request, change func(tx pgx.Tx) (APIKey, error)) (k APIKey, replayed bool, err error) {
	var key string
	err = pgx.BeginFunc(ctx, r.DB, func(tx pgx.Tx) (err error) {
		k, replayed, err = once.Do(ctx, tx, int32(who.Tenant), request, func() (APIKey, error) {
			made, err := change(tx)
			if err != nil {
				return made, err
			}
			key, made.Key = made.Key, ""
			return made, Audit(ctx, tx, who.Tenant, who.Subject, Change{Action: action, Target: keyTarget(made.ID), After: made})
		})
		return err
	})
	k.Key = key
	return k, replayed, err
}

// newAPIKey inserts an API key of the caller's tenant, which may have at most most keys. It locks the tenant's row.
func newAPIKey(ctx context.Context, tx pgx.Tx, who Identity, p APIKeyParams, most int, now time.Time) (k APIKey, err error) {
	tenant := who.Tenant
	if err := p.check(now); err != nil {
		return k, err
	}
	// The lock keeps two concurrent requests from exceeding the quota. It is a separate statement, because a statement that waits for
	// the lock would count with a snapshot from before the wait.
	if _, err := tx.Exec(ctx, `SELECT FROM tenant WHERE id = $1 FOR UPDATE`, tenant); err != nil {
		return k, fmt.Errorf("lock tenant: %w", err)
	}
	var have int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM api_key WHERE tenant_id = $1`, tenant).Scan(&have); err != nil {
		return k, fmt.Errorf("count api keys: %w", err)
	}
	if have >= most {
		return k, Exceeded("api_keys", most, have)
	}
	key := newKey()
	rows, _ := tx.Query(ctx, `
		INSERT INTO api_key (tenant_id, id, name, hash, scopes, workflows, expires_at, created_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		RETURNING `+keyColumns,
		tenant, "key_"+strings.ToLower(rand.Text()), p.Name, hashOf(key), p.Scopes, p.Workflows, p.ExpiresAt, who.Subject) // CollectExactlyOneRow reports the error
	k, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[APIKey])
	k.Key = key
	return k, err
}

// rotateAPIKey stores a new secret, and keeps the current one as the previous one.
func rotateAPIKey(ctx context.Context, tx pgx.Tx, tenant ID, id string) (APIKey, error) {
	key := newKey()
	rows, _ := tx.Query(ctx, `
		UPDATE api_key
		SET hash = $3, previous_hash = hash, previous_expires_at = `+postgres.Now+` + $4::interval
		WHERE tenant_id = $1 AND id = $2
		RETURNING `+keyColumns, tenant, id, hashOf(key), keyOverlap) // CollectExactlyOneRow reports the error
	k, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[APIKey])
	if errors.Is(err, pgx.ErrNoRows) {
		return k, noAPIKey(id)
	}
	k.Key = key
	return k, err
}

// keyTarget returns the audit's name for an API key.
func keyTarget(id string) string { return "admin/api-keys/" + id }

func noAPIKey(id string) error { return fault.NotFound("no api key %q", id) }

// Exceeded returns the fault 403 of a count that has reached its quota.
func Exceeded(quota string, limit, used int) *fault.Error {
	f := fault.Forbidden("quota_exceeded", "%s allows %d, and %d exist", quota, limit, used)
	f.Extra = map[string]any{"quota": quota, "limit": limit, "used": used}
	return f
}

// TooLarge returns the fault 413 of a member of a body, such as /payload, that has more bytes than a quota allows. The code and the
// detail have the member's last name.
func TooLarge(pointer, quota string, limit, bytes int) *fault.Error {
	what := pointer[strings.LastIndexByte(pointer, '/')+1:]
	f := fault.TooLarge(what+"_too_large", "the %s has %d bytes, and %s allows %d", what, bytes, quota, limit)
	f.Fields = []fault.Field{{Pointer: pointer, Code: f.Code, Detail: f.Detail}}
	f.Extra = map[string]any{"quota": quota, "limit": limit, "used": bytes}
	return f
}

// listKeys returns at most limit keys of a tenant with ids greater than after, ordered by id.
func listKeys(ctx context.Context, db postgres.DB, tenant ID, after string, limit int) ([]APIKey, error) {
	rows, _ := db.Query(ctx, `
		SELECT `+keyColumns+`
		FROM api_key
		WHERE tenant_id = $1 AND id > $2
		ORDER BY id
		LIMIT $3`, tenant, after, limit) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowToStructByName[APIKey])
}

// Delete deletes an API key. The key and its tokens become invalid within 5 s, in this process at once.
func (r Credentials) Delete(ctx context.Context, tenant ID, id string) error {
	err := pgx.BeginFunc(ctx, r.DB, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `DELETE FROM api_key WHERE tenant_id = $1 AND id = $2 RETURNING `+keyColumns, tenant, id) // CollectExactlyOneRow reports the error
		k, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[APIKey])
		if errors.Is(err, pgx.ErrNoRows) {
			return noAPIKey(id)
		}
		if err != nil {
			return err
		}
		return Audit(ctx, tx, tenant, "", Change{Action: "api_key.delete", Target: keyTarget(id), Before: k})
	})
	if err == nil {
		r.Directory.keys.Add(keyName{tenant, id}, keyEntry{false, r.Directory.now()})
	}
	return err
}

// keyLives reports whether the tenant still has that API key. The result is at most two seconds old.
func (d *Directory) keyLives(ctx context.Context, tenant ID, id string) (bool, error) {
	now, name := d.now(), keyName{tenant, id}
	if e, ok := d.keys.Get(name); ok && now.Sub(e.at) < cacheFor {
		return e.lives, nil
	}
	var lives bool
	err := d.db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM api_key WHERE tenant_id = $1 AND id = $2 AND (expires_at IS NULL OR expires_at > `+postgres.Now+`))`,
		tenant, id).Scan(&lives)
	if err != nil {
		return false, fmt.Errorf("look for an api key: %w", err)
	}
	d.keys.Add(name, keyEntry{lives, now})
	if lives {
		d.uses.note(name, now)
	}
	return lives, nil
}

type keyName struct {
	tenant ID
	id     string
}

type keyEntry struct {
	lives bool
	at    time.Time
}
