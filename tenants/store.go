package tenants

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/bytelru"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
)

// row is a row of table tenant.
type row struct {
	ID        ID
	Name      string
	Status    string
	Quotas    []byte
	Issuers   []byte
	Own       []byte `db:"own_issuers"`
	CreatedAt time.Time
	UpdatedAt time.Time
}

const columns = `id, name, status, quotas, issuers, own_issuers, created_at, updated_at`

func (r row) tenant() (Tenant, error) {
	t := Tenant{ID: r.ID, Name: r.Name, Status: r.Status, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	var err error
	if t.Quotas, err = Overrides(r.Quotas).quotas(); err != nil {
		return t, fmt.Errorf("quotas of tenant %s: %w", r.Name, err)
	}
	if t.Issuers, err = storedIssuers(r.Issuers); err == nil {
		t.Own, err = storedIssuers(r.Own)
	}
	if err != nil {
		return t, fmt.Errorf("issuers of tenant %s: %w", r.Name, err)
	}
	return t, nil
}

// storedIssuers reads issuers as they are stored.
func storedIssuers(stored []byte) (issuers []Issuer, err error) {
	if err := json.Unmarshal(stored, &issuers); err != nil {
		return nil, err
	}
	for n := range issuers {
		if err := issuers[n].read(""); err != nil {
			return nil, err
		}
	}
	return issuers, nil
}

func one(rows pgx.Rows) (Tenant, error) {
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[row])
	if err != nil {
		return Tenant{}, err
	}
	return r.tenant()
}

// Get returns the tenant of that name.
func Get(ctx context.Context, db postgres.DB, name string) (Tenant, error) {
	rows, _ := db.Query(ctx, `
		SELECT `+columns+`
		FROM tenant
		WHERE name = $1`, name) // CollectExactlyOneRow reports the error
	t, err := one(rows)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, fault.NotFound("no tenant %q", name)
	}
	return t, err
}

// List returns at most limit tenants with names greater than after, ordered by the bytes of their names.
func List(ctx context.Context, db postgres.DB, after string, limit int) ([]Tenant, error) {
	rows, _ := db.Query(ctx, `
		SELECT `+columns+`
		FROM tenant
		WHERE name > $1
		ORDER BY name
		LIMIT $2`, after, limit)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return nil, err
	}
	all := make([]Tenant, len(found))
	for i, r := range found {
		if all[i], err = r.tenant(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Put creates or replaces the tenant of that name. Without a status in p it keeps the old one. made reports that the tenant is new.
func Put(ctx context.Context, db postgres.DB, name string, p Params) (t Tenant, made bool, err error) {
	quotas, err := json.Marshal(p.Quotas)
	if err != nil {
		return t, false, err
	}
	issuers, err := web.Marshal(append([]Issuer{}, p.Issuers...))
	if err != nil {
		return t, false, err
	}
	rows, _ := db.Query(ctx, `
		INSERT INTO tenant (name, status, quotas, issuers)
		VALUES ($1, coalesce(nullif($2, ''), 'active'), $3, $4)
		ON CONFLICT (name) DO UPDATE
		SET status = coalesce(nullif($2, ''), tenant.status), quotas = excluded.quotas, issuers = excluded.issuers, updated_at = `+postgres.Now+`
		WHERE tenant.erasing_at IS NULL
		RETURNING `+columns+`, xmax = 0 AS made`, name, p.Status, quotas, issuers)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[struct {
		row
		Made bool
	}])
	if errors.Is(err, pgx.ErrNoRows) {
		return t, false, erased(name)
	}
	if err != nil {
		return t, false, err
	}
	t, err = r.tenant()
	return t, r.Made, err
}

// putAudited is Put that checks a precondition and audits the change. The audit contains the keys of issuers, which are public.
func putAudited(ctx context.Context, tx pgx.Tx, name string, p Params, pre version.Precondition) (t Tenant, made bool, err error) {
	if _, err := tx.Exec(ctx, `SELECT FROM tenant WHERE name = $1 FOR UPDATE`, name); err != nil {
		return t, false, fmt.Errorf("lock tenant: %w", err)
	}
	c := Change{Action: "tenant.put", Target: "platform/tenants/" + name}
	was, err := Get(ctx, tx, name)
	f, ok := errors.AsType[*fault.Error](err)
	switch {
	case err == nil:
		c.Before = was.answer()
	case !ok || f.Status != 404:
		return t, false, err
	}
	exists := err == nil
	if err := pre.Check(exists, was.revision()); err != nil {
		return t, false, err
	}
	if t, made, err = Put(ctx, tx, name, p); err != nil {
		return t, false, err
	}
	if !exists && !made { // another request created it in the meantime
		if err := pre.Check(true, 0); err != nil {
			return t, false, err
		}
	}
	c.After = t.answer()
	if err := Audit(ctx, tx, t.ID, "", c); err != nil {
		return t, made, err
	}
	return t, made, auditPlatform(ctx, tx, c)
}

// Ensure creates a tenant with those quotas unless one of that name exists, and returns the tenant.
func Ensure(ctx context.Context, db postgres.DB, name string, q Quotas) (Tenant, error) {
	quotas, err := json.Marshal(q)
	if err != nil {
		return Tenant{}, err
	}
	_, err = db.Exec(ctx, `
		INSERT INTO tenant (name, quotas)
		VALUES ($1, $2)
		ON CONFLICT (name) DO NOTHING`, name, quotas)
	if err != nil {
		return Tenant{}, err
	}
	return Get(ctx, db, name)
}

// cacheFor is the maximum age of an entry in a Directory.
const cacheFor = 2 * time.Second

// The sizes of a Directory's caches. If more tenants are active, some requests and pushes need a query.
const (
	maxCached   = 100_000  // quotas, API keys and their secrets
	maxAbsent   = 10_000   // unknown names and secrets, and exchanges of API keys
	tenantBytes = 64 << 20 // tenants with their issuers: about 80,000 tenants without issuers
)

// Directory finds tenants, and caches them for two seconds. It also caches names of no tenant.
type Directory struct {
	db        postgres.DB
	now       func() time.Time
	patience  time.Duration // bounds the query of a tenant's quotas, and that of an issuer's tenants
	names     nameCache
	quotas    *lru.Cache[ID, quotasEntry]
	keys      *lru.Cache[keyName, keyEntry]
	secrets   secretCache
	uses      *keyUses
	exchanges *lru.Cache[keyFrom, time.Time] // when the exchange of an API key was last audited
	lookups   *lookupLimiter
}

// nameCache holds tenants by their names, and the names of an issuer's tenants.
type nameCache struct {
	known    *bytelru.Cache[string, entry]
	absent   *lru.Cache[string, time.Time] // when a name had no tenant; a cache of its own, because anyone can send such names
	byIssuer *lru.Cache[string, issuerEntry]
}

// secretCache holds the API keys that requests send, by the hash of the secret.
type secretCache struct {
	known  *lru.Cache[[sha256.Size]byte, secretEntry]
	absent *lru.Cache[[sha256.Size]byte, time.Time] // when a secret had no API key
}

type entry struct {
	tenant Tenant
	at     time.Time
}

type quotasEntry struct {
	quotas Quotas
	at     time.Time
}

// bytes returns the approximate size of an entry. A key counts twice, because the entry has its text and its parsed value.
func (e entry) bytes() int {
	n := int(unsafe.Sizeof(e)) + 2*len(e.tenant.Name)
	for _, i := range slices.Concat(e.tenant.Issuers, e.tenant.Own) {
		n += int(unsafe.Sizeof(i)) + len(i.Name) + len(i.JWKSURI) + len(i.Audience) + claimBytes
		for theirs, ours := range i.Scopes {
			n += 2*len(theirs) + len(ours)
		}
		for _, key := range i.Keys {
			n += keyBytes + 2*len(key)
		}
	}
	return n
}

const (
	keyBytes   = 500 // of an issuer's key beside its text
	claimBytes = 800 // of the names of an issuer's claims, at most
)

// NewDirectory returns a Directory of the database's tenants. db must see all tenants, because the tenant of a request is not known yet.
func NewDirectory(db postgres.DB) *Directory {
	absent, err := lru.New[string, time.Time](maxAbsent)
	quotas, err2 := lru.New[ID, quotasEntry](maxCached)
	keys, err3 := lru.New[keyName, keyEntry](maxCached)
	secrets, err4 := lru.New[[sha256.Size]byte, secretEntry](maxCached)
	noSecrets, err5 := lru.New[[sha256.Size]byte, time.Time](maxAbsent)
	exchanges, err6 := lru.New[keyFrom, time.Time](maxAbsent)
	issuers, err7 := lru.New[string, issuerEntry](maxAbsent)
	if err := errors.Join(err, err2, err3, err4, err5, err6, err7); err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return &Directory{
		db: db, now: time.Now, patience: quotasTimeout, names: nameCache{bytelru.New[string](tenantBytes, entry.bytes), absent, issuers}, quotas: quotas, keys: keys,
		secrets: secretCache{secrets, noSecrets}, uses: &keyUses{last: map[keyName]time.Time{}}, exchanges: exchanges, lookups: newLookupLimiter(),
	}
}

// named returns the tenant of that name, or the zero Tenant. signed means that the platform has signed the name. Anyone can send an
// unsigned name, so the look-up of an unsigned name that is not cached is rate limited.
func (d *Directory) named(ctx context.Context, name string, signed bool) (t Tenant, err error) {
	now := d.now()
	e, known := d.names.known.Get(name)
	if known && now.Sub(e.at) < cacheFor {
		return e.tenant, nil
	}
	if at, ok := d.names.absent.Get(name); ok && now.Sub(at) < cacheFor {
		return t, nil
	}
	if known || signed {
		return d.find(ctx, name, now)
	}
	err = d.lookups.run(ctx, nameRate, func() error {
		t, err = d.find(ctx, name, now)
		return err
	})
	return t, err
}

// find reads the tenant of that name and caches it.
func (d *Directory) find(ctx context.Context, name string, now time.Time) (Tenant, error) {
	t, err := Get(ctx, d.db, name)
	if fault.IsNotFound(err) {
		d.names.known.Remove(name)
		d.names.absent.Add(name, now)
		return Tenant{}, nil
	}
	if err != nil {
		return Tenant{}, err
	}
	d.names.absent.Remove(name)
	d.names.known.Add(name, entry{t, now})
	d.quotas.Add(t.ID, quotasEntry{t.Quotas, now})
	return t, nil
}

// forget removes a tenant from the caches. A nil Directory does nothing.
func (d *Directory) forget(t Tenant) {
	if d == nil {
		return
	}
	d.names.known.Remove(t.Name)
	d.names.absent.Remove(t.Name)
	d.quotas.Remove(t.ID)
}

const quotasTimeout = time.Second

// Quotas returns the quotas of a tenant, at most two seconds old. If the database does not answer, it returns the last known quotas and
// queries again after two seconds.
func (d *Directory) Quotas(ctx context.Context, id ID) (Quotas, error) {
	now := d.now()
	last, known := d.quotas.Get(id)
	if known && now.Sub(last.at) < cacheFor {
		return last.quotas, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	rows, _ := d.db.Query(ctx, `
		SELECT `+columns+`
		FROM tenant
		WHERE id = $1`, id)
	t, err := one(rows)
	if err != nil && known && !errors.Is(err, pgx.ErrNoRows) {
		d.quotas.Add(id, quotasEntry{last.quotas, now})
		return last.quotas, nil
	}
	if err != nil {
		return Quotas{}, fmt.Errorf("quotas of tenant %d: %w", id, err)
	}
	d.quotas.Add(id, quotasEntry{t.Quotas, now})
	return t.Quotas, nil
}

// Secret returns the installation's secret of that name, which all its processes share. If there is none, it stores fresh and returns
// that.
func Secret(ctx context.Context, db postgres.DB, name string, fresh []byte) ([]byte, error) {
	_, err := db.Exec(ctx, `
		INSERT INTO setting (name, value)
		VALUES ($1, $2)
		ON CONFLICT (name) DO NOTHING`, name, fresh)
	if err != nil {
		return nil, fmt.Errorf("store the secret %s: %w", name, err)
	}
	var secret []byte
	err = db.QueryRow(ctx, `SELECT value FROM setting WHERE name = $1`, name).Scan(&secret)
	if err != nil {
		return nil, fmt.Errorf("read the secret %s: %w", name, err)
	}
	return secret, nil
}
