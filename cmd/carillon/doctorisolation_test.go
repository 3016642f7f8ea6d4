package main

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/migrations"
)

func TestTheDoctorExaminesTheIsolation(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	look := func(apiURL string) (said []string) {
		t.Helper()
		for _, f := range examineIsolation(t.Context(), pool, apiURL) {
			if (f.Status == "ok") != (f.Remedy == "") {
				t.Errorf("got %+v", f)
			}
			said = append(said, f.Status+" "+f.Detail)
		}
		return said
	}
	if said := look(""); len(said) != 1 || !strings.HasPrefix(said[0], "ok row-level security isolates tenants on ") {
		t.Errorf("without a gap it says %q", said)
	}

	exec(`CREATE TABLE fresh (tenant_id int NOT NULL);
		ALTER TABLE schedule NO FORCE ROW LEVEL SECURITY;
		GRANT SELECT ON tick_default TO carillon_api;
		DROP POLICY of_tenant ON member;
		ALTER POLICY of_tenant ON workflow USING (true);
		CREATE POLICY peep ON endpoint TO public USING (true)`)
	want := []string{
		"failed carillon_api has a grant on the partition tick_default",
		"failed endpoint has a policy that shows more than a tenant's rows: peep",
		"failed fresh has no row-level security",
		"failed member has no policy that shows a tenant its own rows",
		"failed row-level security of schedule is not forced on its owner",
		"failed workflow has a policy that shows more than a tenant's rows: of_tenant",
	}
	got := look("")
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}

	var out strings.Builder
	getenv := func(name string) string { return map[string]string{"DATABASE_URL": pool.Config().ConnString()}[name] }
	if code := run(t.Context(), []string{"doctor", "--json"}, getenv, &out, io.Discard); code == exitDone {
		t.Error("the doctor finds nothing wrong")
	}
	var said struct {
		OK       bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(out.String()), &said); err != nil || said.OK {
		t.Fatalf("got %s, %v", out.String(), err)
	}
	if n := slices.IndexFunc(said.Findings, func(f finding) bool { return f.Name == "isolation" && strings.Contains(f.Remedy, "carillon migrate") }); n < 0 {
		t.Errorf("it does not say what to do: %s", out.String())
	}
}

// Migrating again repairs the policies that the doctor reports: altered, dropped and added ones.
func TestMigratingAgainRepairsTheIsolation(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	if _, err := pool.Exec(t.Context(), `
		ALTER TABLE schedule NO FORCE ROW LEVEL SECURITY;
		GRANT SELECT ON tick_default TO carillon_api;
		DROP POLICY of_tenant ON member;
		ALTER POLICY of_tenant ON workflow USING (true);
		ALTER POLICY of_tenant ON lease_beat WITH CHECK (true);
		ALTER POLICY of_engine ON cohort TO public;
		ALTER POLICY of_platform ON tenant USING (false);
		CREATE POLICY peep ON endpoint TO public USING (true)`); err != nil {
		t.Fatal(err)
	}
	policies := func(pool *pgxpool.Pool) (all []string) {
		rows, _ := pool.Query(t.Context(), `
			SELECT concat_ws(' ', tablename, policyname, permissive, roles, cmd, qual, with_check)
			FROM pg_policies
			WHERE schemaname = 'public'
			ORDER BY tablename, policyname`) // CollectRows reports the error
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if _, err := migrations.Up(t.Context(), pool.Config().ConnString(), migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range examineIsolation(t.Context(), pool, "") {
		if f.Status != "ok" {
			t.Errorf("after migrating again: %+v", f)
		}
	}
	if diff := cmp.Diff(policies(postgrestest.Database(t)), policies(pool)); diff != "" {
		t.Errorf("policies (-as created +as repaired):\n%s", diff)
	}
}

func TestTheDoctorExaminesTheUserOfRequests(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	var database string
	if err := pool.QueryRow(t.Context(), `SELECT current_database()`).Scan(&database); err != nil {
		t.Fatal(err)
	}
	user := "looked_at_of_" + database // roles belong to the cluster
	u, err := url.Parse(pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "secret")
	if _, err := pool.Exec(t.Context(), `CREATE ROLE `+user+` LOGIN PASSWORD 'secret' IN ROLE carillon_api`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), `DROP ROLE `+user); err != nil {
			t.Error(err)
		}
	})
	look := func(want ...string) {
		t.Helper()
		all := examineIsolation(t.Context(), pool, u.String())
		if len(all) != len(want) {
			t.Fatalf("got %+v", all)
		}
		for n, f := range all {
			if !strings.Contains(f.Status+" "+f.Detail+" "+f.Remedy, want[n]) {
				t.Errorf("got %+v, want %s", f, want[n])
			}
		}
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	look("GRANT carillon_platform TO \"" + user)
	exec(`GRANT carillon_platform TO ` + user)
	look("ok row-level security isolates tenants")
	exec(`GRANT carillon_engine TO ` + user)
	look("is or can become a role to which no policy applies")
	u.User = url.UserPassword(user, "wrong")
	u.Path = "/none"
	look("CARILLON_API_DATABASE_URL: ")
}
