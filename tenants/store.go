package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// row is a tenant as the database holds it.
type row struct {
	ID        ID
	Name      string
	Status    string
	Quotas    []byte
	Issuers   []byte
	CreatedAt time.Time
	UpdatedAt time.Time
}

const columns = `id, name, status, quotas, issuers, created_at, updated_at`

func (r row) tenant() (Tenant, error) {
	t := Tenant{ID: r.ID, Name: r.Name, Status: r.Status, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	var err error
	if t.Quotas, err = Overrides(r.Quotas).quotas(); err != nil {
		return t, fmt.Errorf("quotas of tenant %s: %w", r.Name, err)
	}
	if err := json.Unmarshal(r.Issuers, &t.Issuers); err != nil {
		return t, fmt.Errorf("issuers of tenant %s: %w", r.Name, err)
	}
	for n := range t.Issuers {
		if err := t.Issuers[n].read(""); err != nil {
			return t, fmt.Errorf("issuers of tenant %s: %w", r.Name, err)
		}
	}
	return t, nil
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

// List returns at most limit tenants whose names come after, in order of their names by byte.
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

// Put makes the tenant of that name, or changes it to be as p says; its status stays where p says none. It reports
// whether it was made.
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

// putAudited is Put, with the change in the tenant's audit. Issuers' keys are public, and are told.
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
	if !exists && !made { // another made it meanwhile
		if err := pre.Check(true, 0); err != nil {
			return t, false, err
		}
	}
	c.After = t.answer()
	return t, made, Audit(ctx, tx, t.ID, "", c)
}

// Ensure makes the tenant of that name with those quotas, and returns one that exists as it is.
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

// cacheFor is how old what a Directory says is at most.
const cacheFor = 2 * time.Second

// What a Directory remembers. Each tenant that is in use beyond that is looked up by each of its requests and pushes.
const (
	mostRemembered = 100_000  // quotas, and API keys
	mostAbsent     = 10_000   // names of no tenant, and exchanges of API keys
	tenantBytes    = 64 << 20 // of tenants with their issuers: some 80,000 that have none
)

// Directory finds tenants, and remembers them for two seconds: also those that are not there.
type Directory struct {
	db        postgres.DB
	now       func() time.Time
	byName    *bytelru.Cache[string, entry]
	absent    *lru.Cache[string, time.Time] // names of no tenant, and when they were looked for: strangers choose them
	quotas    *lru.Cache[ID, quotasEntry]
	keys      *lru.Cache[keyName, keyEntry]
	uses      *keyUses
	exchanges *lru.Cache[keyFrom, time.Time] // of API keys, and when the audit told of one last
	strangers *strangers
}

type entry struct {
	tenant Tenant
	at     time.Time
}

type quotasEntry struct {
	quotas Quotas
	at     time.Time
}

// bytes returns about how many bytes an entry takes: a key is kept as it was sent and as it was read.
func (e entry) bytes() int {
	n := int(unsafe.Sizeof(e)) + 2*len(e.tenant.Name)
	for _, i := range e.tenant.Issuers {
		n += int(unsafe.Sizeof(i)) + len(i.Name) + len(i.JWKSURI)
		for _, key := range i.Keys {
			n += keyBytes + 2*len(key)
		}
	}
	return n
}

const keyBytes = 500 // of an issuer's key beside its text

// NewDirectory returns a Directory of the database's tenants. It is asked before a tenant is known, so db must show all.
func NewDirectory(db postgres.DB) *Directory {
	absent, err := lru.New[string, time.Time](mostAbsent)
	quotas, err2 := lru.New[ID, quotasEntry](mostRemembered)
	keys, err3 := lru.New[keyName, keyEntry](mostRemembered)
	exchanges, err4 := lru.New[keyFrom, time.Time](mostAbsent)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		panic(err) // their sizes are no more than zero
	}
	return &Directory{
		db: db, now: time.Now, byName: bytelru.New[string](tenantBytes, entry.bytes), absent: absent, quotas: quotas, keys: keys,
		uses: &keyUses{last: map[keyName]time.Time{}}, exchanges: exchanges, strangers: newStrangers(),
	}
}

// named returns the tenant of that name, or the zero Tenant where there is none. The name is proven when the platform has
// signed it; otherwise a stranger may have chosen it, and only names of tenants that are remembered are looked up without limits.
func (d *Directory) named(ctx context.Context, name string, proven bool) (t Tenant, err error) {
	now := d.now()
	e, known := d.byName.Get(name)
	if known && now.Sub(e.at) < cacheFor {
		return e.tenant, nil
	}
	if at, ok := d.absent.Get(name); ok && now.Sub(at) < cacheFor {
		return t, nil
	}
	if known || proven {
		return d.find(ctx, name, now)
	}
	err = d.strangers.look(ctx, nameRate, func() error {
		t, err = d.find(ctx, name, now)
		return err
	})
	return t, err
}

// find reads the tenant of that name, and remembers it as of now.
func (d *Directory) find(ctx context.Context, name string, now time.Time) (Tenant, error) {
	t, err := Get(ctx, d.db, name)
	if fault.IsNotFound(err) {
		d.byName.Remove(name)
		d.absent.Add(name, now)
		return Tenant{}, nil
	}
	if err != nil {
		return Tenant{}, err
	}
	d.absent.Remove(name)
	d.byName.Add(name, entry{t, now})
	d.quotas.Add(t.ID, quotasEntry{t.Quotas, now})
	return t, nil
}

// forget has the next look at a tenant be a fresh one. A nil Directory remembers nothing.
func (d *Directory) forget(t Tenant) {
	if d == nil {
		return
	}
	d.byName.Remove(t.Name)
	d.absent.Remove(t.Name)
	d.quotas.Remove(t.ID)
}

// quotasTimeout is how long a request or a push waits for the database to answer about quotas.
const quotasTimeout = time.Second

// Quotas returns the limits of a tenant, at most two seconds old. While the database does not answer, it returns the last known
// limits, and asks again after two seconds.
func (d *Directory) Quotas(ctx context.Context, id ID) (Quotas, error) {
	now := d.now()
	last, known := d.quotas.Get(id)
	if known && now.Sub(last.at) < cacheFor {
		return last.quotas, nil
	}
	ctx, cancel := context.WithTimeout(ctx, quotasTimeout)
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

// Secret is the installation's secret of that name: fresh where there is none yet, else the one that was kept. All
// processes that share a database share it.
func Secret(ctx context.Context, db postgres.DB, name string, fresh []byte) ([]byte, error) {
	_, err := db.Exec(ctx, `
		INSERT INTO setting (name, value)
		VALUES ($1, $2)
		ON CONFLICT (name) DO NOTHING`, name, fresh)
	if err != nil {
		return nil, fmt.Errorf("keep the secret %s: %w", name, err)
	}
	var secret []byte
	err = db.QueryRow(ctx, `SELECT value FROM setting WHERE name = $1`, name).Scan(&secret)
	if err != nil {
		return nil, fmt.Errorf("read the secret %s: %w", name, err)
	}
	return secret, nil
}
