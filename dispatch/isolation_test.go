package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	denied      = "42501" // insufficient_privilege, also of a row that no policy allows
	referred    = "23503" // foreign_key_violation
	anotherRole = "another tenant's rows of %s are %s"
)

// twoTenants makes a Carillon with two tenants. Each has at least one row in every table that holds rows of tenants.
func twoTenants(t *testing.T) (h *dispatchtest.Carillon, other tenants.ID) {
	t.Helper()
	h = dispatchtest.New(t)
	second, err := tenants.Ensure(t.Context(), h.Pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	p := schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 8 1 1 *"}}, Labels: map[string]string{"plan": "pro"}}
	for _, tenant := range []tenants.ID{h.Tenant, second.ID} {
		if _, _, err := h.Schedules.Put(postgres.ForTenant(t.Context(), int32(tenant)), policy.Name{Tenant: tenant, Workflow: "w", Key: "k"}, p, "ann", version.Precondition{}); err != nil {
			t.Fatal(err)
		}
		for table, n := range h.Holds(tenant) {
			if n == 0 {
				h.Invent(table, tenant)
			}
		}
	}
	h.Exec(`INSERT INTO lease_beat (lease_id, slot, until_at) SELECT id, 0, now() FROM lease`)
	return h, second.ID
}

// code returns PostgreSQL's code of an error; empty if there is no error.
func code(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		t.Fatal(err)
	}
	return e.Code
}

// try runs a statement as a tenant's request and rolls it back. It returns how many rows were affected, and the code of the error.
func try(t *testing.T, db postgres.DB, sql string, args ...any) (n int64, failed string) {
	t.Helper()
	undo := errors.New("undo")
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(t.Context(), sql, args...)
		n, failed = tag.RowsAffected(), code(t, err)
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	return n, failed
}

func TestAQueryThatForgetsTheTenantReachesNobodyElse(t *testing.T) {
	t.Parallel()
	h, other := twoTenants(t)
	api := postgrestest.TenantPool(t, h.Pool, int32(h.Tenant))
	mine, theirs := h.Holds(h.Tenant), h.Holds(other)
	for _, table := range slices.Sorted(maps.Keys(mine)) {
		own := int64(mine[table])
		if own == 0 || theirs[table] == 0 {
			t.Fatalf("there is nothing in %s to see", table)
		}
		if n, failed := try(t, api, `SELECT FROM `+table); n != own || failed != "" {
			t.Errorf(anotherRole+": %d of %d, %s", table, "seen", n, own, failed)
		}
		if n, failed := try(t, api, `SELECT FROM `+table+` WHERE tenant_id = $1`, other); n != 0 || failed != "" {
			t.Errorf(anotherRole+": %d, %s", table, "found", n, failed)
		}
		if n, failed := try(t, api, `UPDATE `+table+` SET tenant_id = tenant_id`); n != own || failed != "" {
			t.Errorf(anotherRole+": %d of %d, %s", table, "changed", n, own, failed)
		}
		if n, failed := try(t, api, `DELETE FROM `+table); n != own && failed != referred {
			t.Errorf(anotherRole+": %d of %d, %s", table, "deleted", n, own, failed)
		}
		if _, failed := try(t, api, `UPDATE `+table+` SET tenant_id = $1`, other); failed != denied {
			t.Errorf("%s: rows are given to another tenant: %q", table, failed)
		}
		names, values := columnsOf(h, table, other)
		insert := `INSERT INTO ` + table + ` (` + names + `) OVERRIDING SYSTEM VALUE SELECT ` + values + ` FROM ` + table + ` LIMIT 1`
		if _, failed := try(t, api, insert); failed != denied {
			t.Errorf("%s: a row is made for another tenant: %q", table, failed)
		}
	}
}

// columnsOf are the columns of a table that may be written, and their values in a row of it, but another tenant's.
func columnsOf(h *dispatchtest.Carillon, table string, tenant tenants.ID) (names, values string) {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `
		SELECT column_name
		FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name = $1 AND is_generated = 'NEVER'`, table)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.T.Fatal(err)
	}
	quoted := make([]string, len(all))
	for i, name := range all {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	names = strings.Join(quoted, ", ")
	quoted[slices.Index(all, "tenant_id")] = fmt.Sprint(tenant)
	return names, strings.Join(quoted, ", ")
}

func TestATenantSeesItselfAlone(t *testing.T) {
	t.Parallel()
	h, other := twoTenants(t)
	api := postgrestest.TenantPool(t, h.Pool, int32(h.Tenant))
	for sql, want := range map[string]struct {
		n      int64
		failed string
	}{
		`SELECT FROM tenant`:                                         {1, ""},
		`UPDATE tenant SET halted_at = now()`:                        {1, ""},
		`UPDATE tenant SET quotas = '{}'`:                            {0, denied},
		`UPDATE tenant SET status = 'suspended'`:                     {0, denied},
		`DELETE FROM tenant`:                                         {0, denied},
		`INSERT INTO tenant (name) VALUES ('third')`:                 {0, denied},
		`SELECT FROM lease_beat`:                                     {1, ""},
		`DELETE FROM lease_beat`:                                     {1, ""},
		`INSERT INTO lease_beat SELECT 999999, 0, now()`:             {0, denied},
		`SELECT FROM tick_default`:                                   {0, denied},
		`DELETE FROM attempt_default`:                                {0, denied},
		`SELECT FROM setting`:                                        {0, denied},
		`SELECT FROM process`:                                        {0, denied},
		`CREATE TABLE mine ()`:                                       {0, denied},
		`ALTER TABLE tick DISABLE ROW LEVEL SECURITY`:                {0, denied},
		`DROP POLICY of_tenant ON tick`:                              {0, denied},
		`TRUNCATE tick`:                                              {0, denied},
		fmt.Sprintf(`SELECT FROM tenant WHERE id = %d`, other):       {0, ""},
		`SELECT FROM schedule s JOIN tenant t ON s.tenant_id = t.id`: {int64(h.Holds(h.Tenant)["schedule"]), ""},
	} {
		if n, failed := try(t, api, sql); n != want.n || failed != want.failed {
			t.Errorf("%s: got %d, %q, want %d, %q", sql, n, failed, want.n, want.failed)
		}
	}
}

// A session that has no tenant sees nothing, and TenantPool sends no query for a request without a tenant.
func TestNoTenantIsNobody(t *testing.T) {
	t.Parallel()
	h, _ := twoTenants(t)
	api := postgrestest.As(t, h.Pool, postgres.APIRole)
	for _, setting := range []string{"", "0"} {
		if _, err := api.Exec(t.Context(), `SELECT set_config('carillon.tenant', $1, false)`, setting); err != nil {
			t.Fatal(err)
		}
		for table := range h.Holds(h.Tenant) {
			if n, failed := try(t, api, `SELECT FROM `+table); n != 0 || failed != "" {
				t.Errorf("%s shows %d rows to nobody (%q), %s", table, n, setting, failed)
			}
		}
	}
	tenantPool := postgres.NewTenantPool(api)
	if _, err := tenantPool.Exec(context.WithoutCancel(t.Context()), `SELECT 1`); err == nil {
		t.Error("a query was sent for nobody")
	}
}

// The platform's operator sees which tenants there are, but no rows of theirs.
func TestThePlatformSeesNoRowsOfTenants(t *testing.T) {
	t.Parallel()
	h, _ := twoTenants(t)
	platform := postgrestest.As(t, h.Pool, postgres.PlatformRole)
	if n, failed := try(t, platform, `SELECT FROM tenant`); n != 2 || failed != "" {
		t.Errorf("it sees %d tenants, %s", n, failed)
	}
	for table := range h.Holds(h.Tenant) {
		n, failed := try(t, platform, `SELECT FROM `+table)
		if table == "api_key" { // by which it is told whose a key is
			if n != 2 || failed != "" {
				t.Errorf("it sees %d keys, %s", n, failed)
			}
			continue
		}
		if failed != denied {
			t.Errorf("it reads %s: %d rows, %s", table, n, failed)
		}
		if _, failed := try(t, platform, `DELETE FROM `+table); failed != denied {
			t.Errorf("it deletes from %s: %s", table, failed)
		}
	}
}
