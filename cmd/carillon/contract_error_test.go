package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// expect sends a request and reports an answer of another status or code; it returns the answer's members.
func (s whole) expect(t *testing.T, client *http.Client, token, method, path, body string, status int, code string) map[string]any {
	t.Helper()
	got, answer := s.send(t, client, token, method, path, "application/json", body)
	var doc map[string]any
	_ = json.Unmarshal(answer, &doc)
	if is, _ := doc["code"].(string); got != status || is != code {
		t.Errorf("%s %s: got %d %s, want %d %s", method, path, got, answer, status, code)
	}
	return doc
}

func TestQuotasRefuse(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	platform, admin := s.mint(t, "", tenants.PlatformAdmin), s.mint(t, "small", tenants.TenantAdmin)
	s.expect(t, client, platform, "PUT", "/v1/platform/tenants/small", `{"quotas": {"api_keys": 1, "requests_per_second": 3}}`, 201, "")
	made := s.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read"], "workflows": ["a"]}`, 201, "")
	s.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "b", "scopes": ["schedules:read"]}`, 403, "quota_exceeded")
	token := s.expect(t, client, "", "POST", "/v1/token", fmt.Sprintf(`{"api_key": %q}`, made["key"]), 200, "")["access_token"].(string)
	got, _ := s.ask(t, client, token, "GET", "/v1/workflows/b", nil, nil, patience)
	if got.status != 403 || !strings.Contains(string(got.body), "workflow_not_allowed") || got.header.Get("RateLimit") == "" {
		t.Errorf("another workflow than the token's: got %d %v %s", got.status, got.header, got.body)
	}
	s.expect(t, client, "", "POST", "/v1/token", `{"api_key": "carillon_key_x"}`, 401, "invalid_api_key")
	var refused atomic.Bool
	for deadline := time.Now().Add(inTime); !refused.Load(); { // a burst has at most 6 requests, and the requests above have used some
		if time.Now().After(deadline) {
			t.Fatal("twenty requests at once are let pass at three a second")
		}
		var at sync.WaitGroup
		for range 20 {
			at.Go(func() {
				if status, _ := s.send(t, client, admin, "GET", "/v1/workflows", "", ""); status == http.StatusTooManyRequests {
					refused.Store(true)
				}
			})
		}
		at.Wait()
	}
}

func TestNothingIsExchangedWithoutAPrivateKey(t *testing.T) {
	t.Parallel()
	s := serveWithout(t)
	s.expect(t, checked(t), "", "POST", "/v1/token", `{"api_key": "carillon_key_x"}`, 403, "no_exchange")
}

func TestWhatCannotBeDoneNow(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin := s.mint(t, "acme", tenants.TenantAdmin)
	const one = "/v1/workflows/w/schedules/k"
	s.expect(t, client, admin, "PUT", one, `{"spec": {"cron": "0 8 * * *"}, "policy": {"overlap": "cancel_other"}}`, 201, "")
	const ended = "/v1/workflows/w/schedules/ended"
	s.expect(t, client, admin, "PUT", ended, `{"spec": {"cron": "0 8 * * *"}, "status": "paused"}`, 201, "")
	if _, err := s.pool.Exec(t.Context(), `UPDATE schedule SET status = 'completed', paused_at = NULL WHERE key = 'ended'`); err != nil {
		t.Fatal(err)
	}
	s.expect(t, client, admin, "POST", ended+"/resume", `{}`, 409, "not_paused")
	s.expect(t, client, admin, "PUT", one, fmt.Sprintf(`{"spec": {"cron": "%s1 * * * *"}}`, strings.Repeat("1,", 5000)), 413, "spec_too_large")

	// A worker's heartbeat is refused after a newer tick has replaced the worker's tick.
	lease := func() map[string]any {
		doc := s.expect(t, client, admin, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "wait": "1m", "worker": "a"}`, 200, "")
		return doc["ticks"].([]any)[0].(map[string]any)
	}
	s.expect(t, client, admin, "POST", one+"/trigger", `{}`, 202, "")
	tick := lease()
	s.expect(t, client, admin, "POST", one+"/trigger", `{}`, 202, "")
	s.expect(t, client, admin, "POST", "/v1/ticks/"+tick["tick_id"].(string)+"/heartbeat", fmt.Sprintf(`{"lease_token": %q}`, tick["lease_token"]), 409, "cancelled")

	request := func(method, path, body string, header map[string]string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+admin)
		r.Header.Set("Content-Type", "application/json")
		for name, value := range header {
			r.Header.Set(name, value)
		}
		return r
	}
	do := func(r *http.Request, status int) {
		t.Helper()
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("got %d, want %d", resp.StatusCode, status)
		}
	}
	do(request("PUT", one, `{}`, map[string]string{"Content-Encoding": "br"}), 415)

	// Another request with the same idempotency key has not ended.
	acme, err := tenants.Get(t.Context(), s.pool, "acme")
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		for path, body := range map[string]string{
			one + "/trigger": `{}`, one + "/pause": `{}`,
			"/v1/subjects/k/rename":                             `{"to": "l"}`,
			"/v1/subjects/k/cancel":                             `{}`,
			"/v1/endpoints/none/secrets":                        ``,
			"/v1/schedules/actions":                             `{"action": "pause", "filter": {"all": true}}`,
			"/v1/ticks/" + tick["tick_id"].(string) + "/replay": ``,
		} {
			if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, fmt.Sprintf("idempotency %d POST %s same", acme.ID, path)); err != nil {
				return err
			}
			do(request("POST", path, body, map[string]string{"Idempotency-Key": "same"}), 409)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A request that changes the zone of many schedules is answered at once, with the operation that retimes them. It is refused
// while too many operations are under way.
func TestAKeyThatManyFollowIsRetimedByAnOperation(t *testing.T) {
	t.Parallel()
	const many = 3_000
	s, client := serveHouse(t), checked(t)
	admin := s.mint(t, "acme", tenants.TenantAdmin)
	s.expect(t, client, admin, "PUT", "/v1/subjects/k", `{"timezone": "Europe/Paris"}`, 201, "")
	var body strings.Builder
	for n := range many {
		fmt.Fprintf(&body, `{"workflow": "w%d", "key": "k", "spec": {"cron": "0 8 * * *", "timezone": "@subject"}}`+"\n", n)
	}
	if status, answer := s.send(t, http.DefaultClient, admin, "POST", "/v1/schedules/bulk?results=errors", "application/x-ndjson", body.String()); status != 200 || !strings.Contains(string(answer), fmt.Sprintf(`"inserted":%d`, many)) {
		t.Fatalf("got %d %s", status, answer)
	}
	op, _ := s.expect(t, client, admin, "PUT", "/v1/subjects/k", `{"timezone": "Asia/Tokyo"}`, 202, "")["operation"].(map[string]any)
	for deadline := time.Now().Add(inTime); op["state"] != "succeeded"; <-time.After(50 * time.Millisecond) {
		if op = s.expect(t, client, admin, "GET", fmt.Sprint("/v1/operations/", op["id"]), "", 200, ""); time.Now().After(deadline) {
			t.Fatalf("got %v", op)
		}
	}
	if op["done"] != float64(many) || op["total"] != float64(many) {
		t.Errorf("got %v", op)
	}
	if _, err := s.pool.Exec(t.Context(), `
		INSERT INTO operation (tenant_id, kind, started_by, params, look_at)
		SELECT t.id, 'another', 'ann', '{}', clock_timestamp() + interval '1 hour' FROM tenant t, generate_series(1, 100) WHERE t.name = 'acme'`); err != nil {
		t.Fatal(err)
	}
	s.expect(t, client, admin, "PUT", "/v1/subjects/k", `{"timezone": "Europe/Paris"}`, 409, "too_many_operations")
	if got := s.expect(t, client, admin, "GET", "/v1/subjects/k", "", 200, ""); got["timezone"] != "Asia/Tokyo" {
		t.Errorf("a change that was refused: got %v", got)
	}
}

// A client that sends its body too slowly gets an answer before the server closes the connection.
func TestASlowBodyIsRefused(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	server := httptest.NewUnstartedServer(s.router)
	server.Config.ReadTimeout, server.Config.ReadHeaderTimeout = 500*time.Millisecond, time.Minute // the head may be late
	server.Start()
	t.Cleanup(server.Close)
	body, sender := io.Pipe()
	defer sender.Close()
	r, err := http.NewRequestWithContext(t.Context(), "PUT", server.URL+"/v1/workflows/w", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.mint(t, "acme", tenants.TenantAdmin))
	r.Header.Set("Content-Type", "application/json")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("got %d %s, %v", resp.StatusCode, answer, err)
	}
	apitest.New(t).Check(t, r, nil, resp, answer)
}

func TestWhenTheDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `LOCK TABLE workflow`); err != nil {
			return err
		}
		doc := s.expect(t, client, s.mint(t, "acme", tenants.TenantAdmin), "GET", "/v1/workflows", "", 503, "unavailable")
		if doc["detail"] == "" {
			t.Error("it says nothing")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := s.pool.Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`); err != nil {
		t.Fatal(err)
	}
	s.expect(t, client, "", "GET", "/readyz", "", 503, "not_ready")
}

// A schedule is deleted and created again, repeatedly, just before a change reaches its row. The change gives up with an error.
func TestAScheduleThatOthersKeepChanging(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	admin := s.mint(t, "acme", tenants.TenantAdmin)
	const path = "/v1/workflows/w/schedules/k"
	s.expect(t, client, admin, "PUT", path, `{"spec": {"cron": "0 8 * * *"}, "status": "paused"}`, 201, "")
	var shard int16
	if err := s.pool.QueryRow(t.Context(), `SELECT shard FROM schedule`).Scan(&shard); err != nil {
		t.Fatal(err)
	}
	begin := func() pgx.Tx {
		tx, err := s.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		return tx
	}
	exec := func(tx pgx.Tx, sql string, args ...any) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const anew = `
		DO $$
		DECLARE
			columns text := (SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
				WHERE table_name = 'schedule' AND table_schema = current_schema AND is_generated = 'NEVER' AND is_identity = 'NO');
		BEGIN
			CREATE TEMPORARY TABLE old ON COMMIT DROP AS SELECT * FROM schedule;
			DELETE FROM schedule;
			EXECUTE format('INSERT INTO schedule (%1$s) SELECT %1$s FROM old', columns);
			INSERT INTO schedule_state (tenant_id, schedule_id) SELECT tenant_id, id FROM schedule;
		END $$`
	changer := begin()
	exec(changer, `SELECT FROM schedule FOR UPDATE`)
	answered := make(chan map[string]any, 1)
	go func() {
		answered <- s.expect(t, client, admin, "POST", path+"/pause", `{"note": "x"}`, 503, "busy")
	}()
	for ended := s.blocked(t, "%FOR UPDATE%", nil); !ended; {
		// We request the shard's lock while the change waits, and get it when the change gives up for the first time.
		gate := begin()
		asked := make(chan error, 1)
		go func() {
			var b pgx.Batch
			cohorts.LockShard(&b, shard)
			asked <- gate.SendBatch(t.Context(), &b).Close()
		}()
		s.blocked(t, "%pg_advisory_xact_lock($1, $2)%", nil)
		exec(changer, anew)
		if err := changer.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		changer = begin()
		exec(changer, `SELECT FROM schedule FOR UPDATE`)
		if err := gate.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended = s.blocked(t, "%FOR UPDATE%", answered) // otherwise it has tried again and waits
	}
}

// blocked waits until a session waits for a lock in such a statement. It reports true if the answer came instead.
func (s whole) blocked(t *testing.T, sql string, answered <-chan map[string]any) bool {
	t.Helper()
	for deadline := time.Now().Add(inTime); ; {
		var waits bool
		err := s.pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1)`, sql).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		if waits {
			return false
		}
		select {
		case <-answered:
			return true
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody waits in %s", sql)
		}
	}
}
