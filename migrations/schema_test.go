package migrations_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

var update = flag.Bool("update", false, "write the pages of the schema")

// table is a table as the catalogue describes it.
type table struct {
	Name, Comment, Options string
	Columns                []column
	Keys, Indexes          []string
}

type column struct {
	Name, Type, Rule, Comment string
}

// The pages docs/schema*.md agree with the catalogue. `go test ./migrations -run TestPagesAreTheSchema -update` writes them.
func TestPagesAreTheSchema(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	pages := map[string]string{}
	var index strings.Builder
	index.WriteString("# The schema\n\nFor people who change Carillon or look into its database: the pages are made from the catalogue of a migrated database:\n" +
		"`go test ./migrations -run TestPagesAreTheSchema -update` writes them, and the test fails while they differ.\n\n" +
		"A table with `tenant_id` holds rows of tenants, and row-level security shows a tenant only its own. Types are those of PostgreSQL;\n" +
		"`text (C)` is compared by bytes. River's tables are River's own, and are not listed.\n")
	listed := map[string]bool{}
	for _, file := range schemaFiles(t) {
		room := regexp.MustCompile(`^\d+_|\.sql$`).ReplaceAllString(filepath.Base(file.name), "")
		about := file.about
		fmt.Fprintf(&index, "\n## [%s](schema/%s.md)\n\n%s\n\n| table | a row is | key |\n| --- | --- | --- |\n", room, room, about)
		var page strings.Builder
		fmt.Fprintf(&page, "# The schema: %s\n\nFor people who change Carillon: %s\nThis page is made from the catalogue: see [schema.md](../schema.md).\n", room, about)
		for _, name := range file.tables {
			one := read(t, pool, name)
			listed[name] = true
			fmt.Fprintf(&index, "| [`%s`](schema/%s.md#%s) | %s | %s |\n", name, room, name, one.Comment, strings.Join(one.Keys[:min(1, len(one.Keys))], ""))
			one.write(&page)
		}
		pages[filepath.Join("schema", room+".md")] = page.String()
	}
	pages["schema.md"] = index.String()
	for name, text := range pages {
		path := filepath.Join("..", "docs", name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if stored, err := os.ReadFile(path); err != nil || string(stored) != text {
			t.Errorf("%s differs from the schema (%v): go test ./migrations -run TestPagesAreTheSchema -update", name, err)
		}
	}
	for _, name := range tables(t, pool) {
		if !listed[name] {
			t.Errorf("no page lists %s", name)
		}
	}
}

// Each table has a comment that is a sentence.
func TestTablesHaveComments(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	for _, name := range tables(t, pool) {
		if one := read(t, pool, name); !strings.HasSuffix(one.Comment, ".") {
			t.Errorf("%s has no comment that is a sentence: %q", name, one.Comment)
		}
	}
}

// schemaFile is a file of the schema: its first comment, and the tables that it creates, in their order.
type schemaFile struct {
	name, about string
	tables      []string
}

func schemaFiles(t *testing.T) (all []schemaFile) {
	t.Helper()
	names, err := filepath.Glob("sql/*.sql")
	if err != nil || len(names) < 5 {
		t.Fatalf("got %v, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := schemaFile{name: name}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			comment, ok := strings.CutPrefix(line, "-- ")
			if !ok {
				break
			}
			f.about = strings.TrimSpace(f.about + " " + comment)
		}
		for _, made := range regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE ([a-z_]+) \(`).FindAllStringSubmatch(string(text), -1) {
			f.tables = append(f.tables, made[1])
		}
		all = append(all, f)
	}
	return all
}

// tables returns our tables without their partitions.
func tables(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT relname::text FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname !~ '^(goose|river)'
		ORDER BY relname`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 40 {
		t.Fatalf("got %d tables, %v", len(names), err)
	}
	return names
}

// read reads a table from the catalogue.
func read(t *testing.T, pool *pgxpool.Pool, name string) table {
	t.Helper()
	one := table{Name: name}
	err := pool.QueryRow(t.Context(), `
		SELECT COALESCE(obj_description(c.oid, 'pg_class'), ''),
			concat_ws(', ', CASE c.relpersistence WHEN 'u' THEN 'unlogged' END, CASE c.relkind WHEN 'p' THEN 'partitioned by day' END, array_to_string(c.reloptions, ', '))
		FROM pg_class c WHERE c.oid = to_regclass($1)`, name).Scan(&one.Comment, &one.Options)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	rows, _ := pool.Query(t.Context(), `
		SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) || CASE WHEN k.collname = 'C' THEN ' (C)' ELSE '' END AS type,
			concat_ws(', ', CASE WHEN NOT a.attnotnull THEN 'null' END, CASE WHEN a.attidentity <> '' THEN 'identity' END,
				CASE WHEN a.attgenerated <> '' THEN 'generated' WHEN d.oid IS NOT NULL THEN 'default ' || pg_get_expr(d.adbin, d.adrelid) END) AS rule,
			COALESCE(col_description(a.attrelid, a.attnum), '') AS comment
		FROM pg_attribute a
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		LEFT JOIN pg_collation k ON k.oid = a.attcollation
		WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
		ORDER BY a.attnum`, name)
	if one.Columns, err = pgx.CollectRows(rows, pgx.RowToStructByName[column]); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	rows, _ = pool.Query(t.Context(), `
		SELECT pg_get_constraintdef(oid) FROM pg_constraint
		WHERE conrelid = to_regclass($1) AND contype IN ('p', 'u', 'f') ORDER BY contype <> 'p', contype, conname`, name)
	if one.Keys, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	rows, _ = pool.Query(t.Context(), `
		SELECT i.relname || ' ' || regexp_replace(pg_get_indexdef(x.indexrelid), '^CREATE (UNIQUE )?INDEX .* USING (btree )?', '\1')
		FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
		WHERE x.indrelid = to_regclass($1) AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = x.indexrelid) ORDER BY i.relname`, name)
	if one.Indexes, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return one
}

// write writes the section of a table.
func (one table) write(page *strings.Builder) {
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n", one.Name, one.Comment)
	for _, list := range [][]string{one.Keys, one.Indexes, {one.Options}} {
		for _, item := range list {
			if item != "" {
				fmt.Fprintf(page, "- `%s`\n", item)
			}
		}
	}
	page.WriteString("\n| column | type | | meaning |\n| --- | --- | --- | --- |\n")
	cell := strings.NewReplacer("timestamp with time zone", "timestamptz", "|", `\|`)
	for _, c := range one.Columns {
		rule := c.Rule
		if rule != "" {
			rule = "`" + cell.Replace(rule) + "`"
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", c.Name, cell.Replace(c.Type), rule, cell.Replace(c.Comment))
	}
}
