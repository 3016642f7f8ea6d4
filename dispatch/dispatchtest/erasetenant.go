package dispatchtest

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// Holds returns how many rows of a tenant each table with a column tenant_id has.
func (h *Carillon) Holds(tenant tenants.ID) map[string]int {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `
		SELECT c.relname
		FROM pg_class c
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.T.Fatal(err)
	}
	n := map[string]int{}
	for _, table := range tables {
		var count int
		if err := h.Pool.QueryRow(h.T.Context(), `SELECT count(*) FROM `+table+` WHERE tenant_id = $1`, tenant).Scan(&count); err != nil {
			h.T.Fatal(err)
		}
		n[table] = count
	}
	return n
}

// Invent inserts a row of the tenant into a table. Each required column gets some value of its type.
func (h *Carillon) Invent(table string, tenant tenants.ID) {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `
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
		case "delayed.why":
			value = "'retry'"
		case "tick.state":
			value = "0"
		case "bucket.quota":
			value = "'y'"
		case "rate_allowance.kind":
			value = "'workflow'"
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
		h.T.Fatal(err)
	}
	if table == "sync_line" {
		names, values = append(names, "outcome"), append(values, "'x'")
	}
	if _, err := h.Pool.Exec(h.T.Context(), `INSERT INTO `+table+` (`+strings.Join(names, ", ")+`) VALUES (`+strings.Join(values, ", ")+`) ON CONFLICT DO NOTHING`); err != nil { // what was folded meanwhile is there
		h.T.Fatalf("a row for %s: %v", table, err)
	}
}
