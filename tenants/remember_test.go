package tenants

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// asked counts the queries of a database.
type asked struct {
	postgres.DB
	queries int
}

func (a *asked) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	a.queries++
	return a.DB.Query(ctx, sql, args...)
}

// Many tenants may be in use at a time: each is looked up once within two seconds.
func TestTenantsInUseAreRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const many = 12_000
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO tenant (id, name, quotas) OVERRIDING SYSTEM VALUE SELECT n, 't' || n, '{}' FROM generate_series(100001, 100000 + $1::int) AS n`, many); err != nil {
		t.Fatal(err)
	}
	db := &asked{DB: w.pool}
	d := NewDirectory(db)
	now := d.now()
	d.now = func() time.Time { return now }
	for range 2 {
		for n := range many {
			found, err := d.named(t.Context(), fmt.Sprint("t", 100001+n), true)
			if err != nil || found.ID != ID(100001+n) {
				t.Fatalf("got %+v, %v", found, err)
			}
			if _, err := d.Quotas(t.Context(), found.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if db.queries != many {
		t.Errorf("%d tenants cost %d queries", many, db.queries)
	}
}

// Tenants with large issuers do not fill the memory: those that were not used for longest are forgotten.
func TestRememberedIssuersHaveABound(t *testing.T) {
	t.Parallel()
	d := NewDirectory(nil)
	large := Tenant{Issuers: []Issuer{{Name: "i"}}}
	for range maxKeys {
		large.Issuers[0].Keys = append(large.Issuers[0].Keys, web.Raw(make([]byte, 2000)))
	}
	now := d.now()
	const most = tenantBytes / (maxKeys * 2000)
	for n := range 2 * most {
		d.names.known.Add(fmt.Sprint(n), entry{large, now})
	}
	if n := d.names.known.Len(); n == 0 || n > most {
		t.Errorf("%d tenants are remembered, want at most %d", n, most)
	}
	if _, ok := d.names.known.Get(fmt.Sprint(2*most - 1)); !ok {
		t.Error("the last one is forgotten")
	}
}
