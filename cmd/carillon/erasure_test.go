package main

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// tablesWith returns the tables that have a text anywhere in a row: in text, in JSON, or as bytes in binary columns.
func (s whole) tablesWith(t *testing.T, text string) (found []string) {
	t.Helper()
	rows, _ := s.pool.Query(t.Context(), `
		SELECT c.oid::regclass::text
		FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'
		ORDER BY 1`) // CollectRows reports the error
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		rows, _ := s.pool.Query(t.Context(), `
			SELECT row_to_json(r)::text
			FROM `+table+` r
			WHERE position($1 IN r::text) > 0 OR position($2 IN r::text) > 0`, text, hex.EncodeToString([]byte(text))) // CollectRows reports the error
		held, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range held {
			found = append(found, table+": "+row)
		}
	}
	return found
}

// once sends a POST with an Idempotency-Key, so that its answer is stored.
func (s whole) once(t *testing.T, client *http.Client, token, path, body string, status int) {
	t.Helper()
	headers := http.Header{"Idempotency-Key": {"once"}, "Content-Type": {"application/json"}}
	if got, _ := s.ask(t, client, token, "POST", path, headers, []byte(body), patience); got.status != status {
		t.Errorf("POST %s: got %d %s, want %d", path, got.status, got.body, status)
	}
}

// After the erasure of a key no row of any table has it or its earlier name.
func TestAnErasedKeyIsInNoTable(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin := s.mint(t, "acme", tenants.TenantAdmin, tenants.TicksWork)
	const (
		first, last = "ü/customer-7", "ü/patient-8"
		old, now    = "%C3%BC%2Fcustomer-7", "%C3%BC%2Fpatient-8"
		escaped     = "%c3%bc%2f%63ustomer-7" // another way to write the first
		schedule    = "/v1/workflows/w/schedules/"
	)
	s.expect(t, client, admin, "PUT", schedule+"bystander", `{"spec": {"cron": "0 8 * * *"}}`, 201, "")
	s.expect(t, client, admin, "PUT", "/v1/subjects/"+old, `{"timezone": "Europe/Berlin"}`, 201, "")
	s.expect(t, client, admin, "PUT", schedule+old, `{"spec": {"timezone": "@subject", "cron": "0 8 * * *"}, "note": "customer-7", "labels": {"of": "customer-7"}, "payload": "customer-7"}`, 201, "")
	s.once(t, client, admin, schedule+escaped+"/trigger", `{}`, 202)
	s.once(t, client, admin, "/v1/subjects/"+escaped+"/rename", `{"to": "`+last+`"}`, 200)

	leased := s.expect(t, client, admin, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "wait": "1m", "worker": "a"}`, 200, "")
	ticks, _ := leased["ticks"].([]any)
	for _, one := range ticks {
		tick := one.(map[string]any)
		s.expect(t, client, admin, "POST", "/v1/ticks/"+tick["tick_id"].(string)+"/fail", fmt.Sprintf(`{"lease_token": %q, "error": "no patient-8", "retry": false}`, tick["lease_token"]), 204, "")
	}
	s.once(t, client, admin, schedule+"bystander/trigger", `{}`, 202)
	day := time.Now().UTC().Truncate(24 * time.Hour)
	span := fmt.Sprintf(`{"from": %q, "to": %q}`, day.AddDate(0, 0, -3).Format(time.RFC3339), day.AddDate(0, 0, -1).Format(time.RFC3339))
	s.once(t, client, admin, schedule+old+"/backfill", span, 202)
	s.once(t, client, admin, "/v1/schedules/actions", `{"action": "pause", "filter": {"key_prefix": "`+last+`"}}`, 202)
	s.expect(t, client, admin, "POST", "/v1/schedules/actions", `{"action": "retime", "filter": {"workflow": "w"}}`, 202, "")
	s.once(t, client, admin, "/v1/admin/dead-letters/replay", `{"filter": {"key": "`+last+`"}}`, 202)
	s.until(t, "the action of all has ended", `SELECT count(*) = 1 FROM operation WHERE state = 'succeeded' AND params ->> 'action' = 'retime'`)
	for _, name := range []string{"customer-7", "patient-8"} {
		if found := s.tablesWith(t, name); len(found) < 3 {
			t.Errorf("%s is in %q: the search finds too little", name, found)
		}
	}
	s.expect(t, client, admin, "DELETE", "/v1/subjects/"+now, "", 200, "")
	for _, name := range []string{"customer-7", "patient-8"} {
		if found := s.tablesWith(t, name); len(found) > 0 {
			t.Errorf("%s is left:\n%s", name, strings.Join(found, "\n"))
		}
	}
	s.until(t, "operations of the key end", `SELECT count(*) = 0 FROM operation WHERE ended_at IS NULL`)
	s.until(t, "the bystander's answer is kept", `SELECT count(*) = 1 FROM idempotency WHERE route LIKE '%bystander%'`)
}

func (s whole) until(t *testing.T, what, sql string) {
	t.Helper()
	for limit := time.Now().Add(inTime); ; <-time.After(10 * time.Millisecond) {
		var holds bool
		if err := s.pool.QueryRow(t.Context(), sql).Scan(&holds); err != nil {
			t.Fatal(err)
		}
		if holds {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("not so in time: %s", what)
		}
	}
}
