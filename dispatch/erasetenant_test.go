package dispatch_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// holds are how many rows of a tenant each table has that can have some: those of the catalogue with a tenant_id.
func (h *house) holds(tenant tenants.ID) map[string]int {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `
		SELECT c.relname
		FROM pg_class c
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.t.Fatal(err)
	}
	n := map[string]int{}
	for _, table := range tables {
		var count int
		if err := h.pool.QueryRow(h.t.Context(), `SELECT count(*) FROM `+table+` WHERE tenant_id = $1`, tenant).Scan(&count); err != nil {
			h.t.Fatal(err)
		}
		n[table] = count
	}
	return n
}

// invent puts a row of the tenant into a table: what must be there gets a value of its type.
func (h *house) invent(table string, tenant tenants.ID) {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `
		SELECT column_name, data_type
		FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name = $1 AND is_nullable = 'NO' AND column_default IS NULL
			AND is_identity = 'NO' AND is_generated = 'NEVER' AND column_name <> 'tenant_id'`, table)
	var name, kind string
	names, values := []string{"tenant_id"}, []string{fmt.Sprint(tenant)}
	_, err := pgx.ForEachRow(rows, []any{&name, &kind}, func() error {
		value, ok := map[string]string{
			"integer": "1", "bigint": "999", "smallint": "1", "boolean": "true", "text": "'x'", "bytea": fmt.Sprintf(`'\x%08x'`, tenant),
			"timestamp with time zone": "now()", "jsonb": "'{}'", "json": "'{}'", "ARRAY": "'{}'", "date": "'2026-01-01'",
		}[kind]
		switch table + "." + name {
		case "attempt.outcome":
			value = "'failed'"
		case "held.why":
			value = "'retry'"
		case "tick.state":
			value = "0"
		case "bucket.quota":
			value = "'y'"
		case "endpoint.secrets":
			value = "ARRAY['x'::bytea]"
		}
		if !ok {
			return fmt.Errorf("what is a %s? column %s of %s", kind, name, table)
		}
		names, values = append(names, name), append(values, value)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if table == "sync_line" {
		names, values = append(names, "outcome"), append(values, "'x'")
	}
	if _, err := h.pool.Exec(h.t.Context(), `INSERT INTO `+table+` (`+strings.Join(names, ", ")+`) VALUES (`+strings.Join(values, ", ")+`) ON CONFLICT DO NOTHING`); err != nil { // what was folded meanwhile is there
		h.t.Fatalf("a row for %s: %v", table, err)
	}
}

func TestErasedTenantLeavesNoRowInAnyTable(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	other, err := tenants.Ensure(t.Context(), h.pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	every := schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"* * * * * *"}}}
	for _, tenant := range []tenants.ID{h.tenant, other.ID} {
		for n := range 3 {
			p := every
			p.Labels = map[string]string{"plan": "pro"}
			if n > 0 {
				p.Spec = calendar.Spec{Cron: calendar.StringList{fmt.Sprintf("%d 8 1 1 *", n)}}
			}
			if _, _, err := h.schedules.Put(postgres.ForTenant(t.Context(), int32(tenant)), policy.Name{Tenant: tenant, Workflow: "w", Key: fmt.Sprint("k", n)}, p, "ann", version.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.start(h.dispatch)
	until(t, "a tick of each is ready", func() bool { return h.holds(h.tenant)["ready"] > 0 && h.holds(other.ID)["ready"] > 0 })
	if _, err := h.pool.Exec(t.Context(), `UPDATE tenant SET halted_at = now() WHERE id = $1`, other.ID); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []tenants.ID{h.tenant, other.ID} {
		for table, n := range h.holds(tenant) {
			if n == 0 {
				h.invent(table, tenant)
			}
		}
	}
	before := h.holds(other.ID)
	if _, _, err := tenants.Erase(t.Context(), h.pool, "acme"); err != nil {
		t.Fatal(err)
	}
	until(t, "the tenant is erased", func() bool {
		done, err := h.dispatch.Keeper.EraseTenant(t.Context(), h.tenant)
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
	for table, n := range h.holds(h.tenant) {
		if n > 0 {
			t.Errorf("%s has %d rows of the tenant still", table, n)
		}
	}
	if _, err := tenants.Get(t.Context(), h.pool, "acme"); err == nil {
		t.Error("the tenant is there still")
	}
	after := h.holds(other.ID)
	for _, moving := range []string{"tick", "roll", "ready", "chunk", "tally_delta", "tally", "daily_use_delta", "daily_use", "turn", "slot", "waiting", "buffered", "held", "wake", "lease", "sync", "sync_line"} {
		delete(before, moving) // of work that goes on, and that others clear away
		delete(after, moving)
	}
	for _, told := range []string{"happening", "notice", "event", "idle_delta", "idle"} { // so are these
		delete(before, told)
		delete(after, told)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("another tenant's rows were touched: %s", diff)
	}
	if slices.Sorted(maps.Keys(after)) == nil {
		t.Error("no tables were looked at")
	}
}

func TestTenantThatIsErasedCannotBeChanged(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if _, _, err := tenants.Erase(t.Context(), h.pool, "acme"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tenants.Put(t.Context(), h.pool, "acme", tenants.Params{Status: tenants.Active}); err == nil || !strings.Contains(err.Error(), "is being erased") {
		t.Errorf("got %v", err)
	}
	if _, err := h.pool.Exec(t.Context(), `UPDATE tenant SET erasing_at = now() - interval '1 minute' WHERE id = $1`, h.tenant); err != nil {
		t.Fatal(err)
	}
	if err := h.dispatch.Keeper.FinishTenants(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tenants.Get(t.Context(), h.pool, "acme"); err == nil {
		t.Error("nobody went on with the erasure")
	}
}
