package migrations_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/embedded"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/migrations"
)

// ofNobody are the tables without rows of tenants. Every other table must have a tenant_id.
var ofNobody = []string{
	"folded", "goose_db_version", "partition_attempt", "platform_audit", "process", "setting", "tzdata",
	"river_client", "river_client_queue", "river_job", "river_leader", "river_migration", "river_notification", "river_queue",
}

// gaps returns the places where the catalogue does not isolate tenants.
func gaps(t *testing.T, pool *pgxpool.Pool) (found []string) {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AS secured, c.relispartition AS partition,
			pg_get_userbyid(c.relowner) AS owner,
			EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id') AS of_tenant,
			COALESCE((SELECT string_agg(pg_get_expr(p.polqual, p.polrelid), ' or ') FROM pg_policy p
				WHERE p.polrelid = c.oid AND (p.polroles @> ARRAY[r.oid] OR p.polroles @> ARRAY[0::oid])), '') AS policy,
			has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') AS granted
		FROM pg_class c
		JOIN pg_roles r ON r.rolname = 'carillon_api'
		WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
		ORDER BY c.relname`) // CollectRows reports the error
	type table struct {
		Relname, Owner, Policy                string
		Secured, Partition, OfTenant, Granted bool
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByName[table])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		say := func(what string) { found = append(found, table.Relname+" "+what) }
		if table.Owner != postgres.EngineRole && table.Relname != "goose_db_version" {
			say("is owned by " + table.Owner)
		}
		if slices.Contains(ofNobody, table.Relname) {
			continue
		}
		if !table.Secured {
			say("has no forced row-level security")
		}
		if table.Partition {
			if table.Granted {
				say("is a partition, and the API has a grant on it")
			}
			continue
		}
		want := map[string]string{"tenant": "(id = ", "lease_beat": "(EXISTS ( SELECT"}[table.Relname]
		if want == "" {
			want = "(tenant_id = "
			if !table.OfTenant {
				say("has no tenant_id")
			}
		}
		if !strings.HasPrefix(table.Policy, want) || strings.Contains(table.Policy, " or ") {
			say("has the policy " + table.Policy)
		}
	}
	return found
}

func TestEveryTableIsolatesTenants(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	pool := open(t, url)
	if found := gaps(t, pool); len(found) > 0 {
		t.Errorf("there are gaps:\n%s", strings.Join(found, "\n"))
	}
	// Changes by hand and a new table are found, and the next migration corrects them.
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE fresh (tenant_id int NOT NULL);
		ALTER TABLE schedule NO FORCE ROW LEVEL SECURITY;
		GRANT SELECT ON tick_default TO carillon_api;
		GRANT ALL ON setting TO carillon_api, carillon_platform;
		DROP POLICY of_tenant ON member`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"fresh has no forced row-level security", "fresh has the policy ", "fresh is owned by ", "member has the policy ",
		"schedule has no forced row-level security", "tick_default is a partition, and the API has a grant on it",
	}
	var got []string
	for _, one := range gaps(t, pool) {
		if strings.HasPrefix(one, "fresh is owned by ") {
			one = "fresh is owned by "
		}
		got = append(got, one)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
	if applied, err := migrations.Up(t.Context(), url, migrations.Options{}); err != nil || applied != 0 {
		t.Fatalf("got %d, %v", applied, err)
	}
	if found := gaps(t, pool); len(found) > 0 {
		t.Errorf("gaps are left:\n%s", strings.Join(found, "\n"))
	}
	var reads bool
	if err := pool.QueryRow(t.Context(), `SELECT has_table_privilege('carillon_api', 'setting', 'SELECT') OR has_table_privilege('carillon_platform', 'setting', 'SELECT')`).Scan(&reads); err != nil || reads {
		t.Errorf("the keys of the installation are readable: %v", err)
	}
}

// A user that is no superuser can migrate after a superuser has created the roles. If the engine has no BYPASSRLS, row-level security is
// not forced on its tables, and the API stays isolated.
func TestAnOwnerThatIsNoSuperuserMigrates(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Config{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if _, err := server.Create(t.Context(), "theirs"); err != nil {
		t.Fatal(err)
	}
	root := open(t, server.URL("theirs"))
	exec := func(sql string) {
		t.Helper()
		if _, err := root.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE ROLE plain NOLOGIN; ALTER DATABASE theirs OWNER TO plain`)
	url := server.URL("theirs")
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	url += sep + "role=plain"
	if _, err := migrations.Up(t.Context(), url, migrations.Options{}); err == nil || !strings.Contains(err.Error(), "as a superuser, run CREATE ROLE carillon_api NOLOGIN") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
	exec(`CREATE ROLE carillon_api NOLOGIN; CREATE ROLE carillon_platform NOLOGIN; CREATE ROLE carillon_engine NOLOGIN;
		GRANT carillon_api, carillon_platform, carillon_engine TO plain`)
	if _, err := migrations.Up(t.Context(), url, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, found := range gaps(t, root) {
		if !strings.HasSuffix(found, "has no forced row-level security") {
			t.Errorf("without BYPASSRLS: %s", found)
		}
	}
	exec(`INSERT INTO tenant (name) VALUES ('a'), ('b')`)
	seen := func(role, table string) (n int) {
		t.Helper()
		pool := postgrestest.As(t, root, role)
		if err := pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %s`, table)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if api, engine, owner := seen(postgres.APIRole, "tenant"), seen(postgres.EngineRole, "tenant"), seen("plain", "tenant"); api != 0 || engine != 2 || owner != 2 {
		t.Errorf("the API sees %d tenants, the engine %d and who migrates %d", api, engine, owner)
	}
	if _, err := postgrestest.As(t, root, postgres.EngineRole).CopyFrom(t.Context(), pgx.Identifier{"tally_delta"}, []string{"tenant_id", "cohort_id", "n"},
		pgx.CopyFromRows([][]any{{1, 1, 1}})); err != nil {
		t.Errorf("the engine cannot copy: %v", err)
	}
	exec(`ALTER ROLE carillon_engine BYPASSRLS`)
	if _, err := migrations.Up(t.Context(), url, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	if found := gaps(t, root); len(found) > 0 {
		t.Errorf("there are gaps:\n%s", strings.Join(found, "\n"))
	}
	exec(`ALTER ROLE carillon_api BYPASSRLS`)
	if _, err := migrations.Up(t.Context(), url, migrations.Options{}); err == nil || !strings.Contains(err.Error(), "no policy applies to it") {
		t.Errorf("got %v for an API role with BYPASSRLS", err)
	}
}
