package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres/embedded"
)

// The files of deploy make secrets and two database users. Carillon migrates and serves with them, and neither is a superuser.
func TestDeployedUsersServe(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Config{Ephemeral: true, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	super := superuserOf(t, server)
	dir := filepath.Join(t.TempDir(), "secrets")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := fmt.Sprintf("127.0.0.1:%d", server.Port())
	runProgram(t, []string{"CARILLON_TEST=main", "CARILLON=" + program}, "../../deploy/secrets.sh", dir, host)
	bin, _, err := embedded.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runProgram(t, []string{"SECRETS=" + dir}, filepath.Join(bin, "psql"), "--no-psqlrc", "--file=../../deploy/users.sql", super)

	environment := map[string]string{
		"DATABASE_URL_FILE":              filepath.Join(dir, "database_url"),
		"CARILLON_API_DATABASE_URL_FILE": filepath.Join(dir, "api_database_url"),
		"CARILLON_ISSUER_KEY_FILE":       filepath.Join(dir, "issuer_key"),
		"CARILLON_KEYSET_FILE":           filepath.Join(dir, "keyset"),
		"CARILLON_CONNECTIONS":           "12",
	}
	getenv := func(name string) string { return environment[name] }
	var said strings.Builder
	if code := run(t.Context(), []string{"migrate"}, getenv, &said, &said); code != exitDone {
		t.Fatalf("migrate ended with %d: %s", code, &said)
	}
	s := serveOn(t, environment)
	if status, body := call(t, http.MethodGet, "http://"+s.Listen+"/readyz", "", ""); status != http.StatusOK {
		t.Errorf("got %d: %s", status, body)
	}
	var platform strings.Builder
	if code := run(t.Context(), []string{"token", "--scope", "platform:admin"}, getenv, &platform, io.Discard); code != exitDone {
		t.Fatalf("token ended with %d", code)
	}
	if status, body := call(t, http.MethodPut, "http://"+s.Listen+"/v1/platform/tenants/acme", strings.TrimSpace(platform.String()), `{"name": "acme"}`); status != http.StatusCreated {
		t.Errorf("got %d: %s", status, body)
	}
	said.Reset()
	if code := run(t.Context(), []string{"doctor"}, getenv, &said, &said); code != exitDone {
		t.Errorf("doctor ended with %d: %s", code, &said)
	}
	var supers int
	if err := connectTo(t, super).QueryRow(t.Context(), `SELECT count(*) FROM pg_roles WHERE rolname LIKE 'carillon%' AND rolsuper`).Scan(&supers); err != nil || supers != 0 {
		t.Errorf("got %d superusers, %v", supers, err)
	}
}

// superuserOf returns the URL of a superuser that is not called carillon, and leaves that name free.
func superuserOf(t *testing.T, server *embedded.Server) string {
	t.Helper()
	url := fmt.Sprintf("postgres://admin:admin@127.0.0.1:%d/postgres?sslmode=disable", server.Port())
	if _, err := connectTo(t, server.URL("postgres")).Exec(t.Context(), `CREATE ROLE admin SUPERUSER LOGIN PASSWORD 'admin'`); err != nil {
		t.Fatal(err)
	}
	if _, err := connectTo(t, url).Exec(t.Context(), `ALTER ROLE carillon RENAME TO first`); err != nil {
		t.Fatal(err)
	}
	return url
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func runProgram(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, said)
	}
}
