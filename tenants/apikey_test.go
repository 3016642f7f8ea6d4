package tenants

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

// keyed is a router with the routes of API keys, and one of each kind that a limited key meets.
func (w *world) keyed(t *testing.T, minter *Minter) *echo.Echo {
	t.Helper()
	cursors, err := web.NewCursor([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	e := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	g := e.Group("", Authenticate(w.verifier, TokenRoute))
	Credentials{DB: w.pool, Cursors: cursors, Directory: w.verifier.Tenants, Limits: NewLimits(NewBuckets(w.pool), w.verifier.Tenants), Minter: minter}.Routes(g)
	who := func(c echo.Context) error { return web.Answer(c, 200, Caller(c).Subject) }
	g.GET(oneSchedule, who, Require(SchedulesRead))
	g.GET("/v1/schedules", who, Require(SchedulesRead))
	g.POST("/v1/ticks/lease", who, Require(TicksWork))
	return e
}

func (w *world) makeKey(t *testing.T, e *echo.Echo, body string) (id, key string) {
	t.Helper()
	rec, doc := ask(e, "POST", "/v1/admin/api-keys", w.token(t, "acme", TenantAdmin), body)
	if rec.Code != 201 {
		t.Fatalf("got %d %s", rec.Code, rec.Body)
	}
	return doc["id"].(string), doc["key"].(string)
}

func exchangeKey(e *echo.Echo, key string) (*httptest.ResponseRecorder, map[string]any) {
	return ask(e, "POST", TokenRoute, "", fmt.Sprintf(`{"api_key": %q}`, key))
}

func TestAKeyIsExchangedForTokensUntilItIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := time.Now()
	w.verifier.Tenants.now = func() time.Time { return clock }
	e := w.keyed(t, &w.minter)
	id, key := w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	rec, doc := exchangeKey(e, key)
	if rec.Code != 200 || doc["token_type"] != "Bearer" || doc["expires_in"] != 600.0 {
		t.Fatalf("got %d %v", rec.Code, doc)
	}
	token := "Bearer " + doc["access_token"].(string)
	if rec, _ := ask(e, "GET", "/v1/schedules", token, ""); rec.Code != 200 || rec.Body.String() != `"`+id+`"` {
		t.Errorf("with its token: got %d %s", rec.Code, rec.Body)
	}
	if rec, _ := ask(e, "POST", "/v1/ticks/lease", token, ""); rec.Code != 403 {
		t.Errorf("beyond its scopes: got %d", rec.Code)
	}
	admin := w.token(t, "acme", TenantAdmin)
	if rec, doc := ask(e, "GET", "/v1/admin/api-keys", admin, ""); rec.Code != 200 || len(doc["items"].([]any)) != 1 || strings.Contains(rec.Body.String(), key) {
		t.Errorf("the list: got %d %s", rec.Code, rec.Body)
	}
	if rec, _ := ask(e, "DELETE", "/v1/admin/api-keys/"+id, w.token(t, "other", TenantAdmin), ""); rec.Code != 404 {
		t.Errorf("another tenant takes it back: got %d", rec.Code)
	}
	if rec, _ := ask(e, "DELETE", "/v1/admin/api-keys/"+id, admin, ""); rec.Code != 204 {
		t.Errorf("taking it back: got %d", rec.Code)
	}
	clock = clock.Add(5 * time.Second) // what another process remembers
	if rec, doc := ask(e, "GET", "/v1/schedules", token, ""); rec.Code != 401 || doc["code"] != "invalid_token" {
		t.Errorf("its token afterwards: got %d %v", rec.Code, doc)
	}
	if rec, doc := exchangeKey(e, key); rec.Code != 401 || doc["code"] != "invalid_api_key" || rec.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("exchanged afterwards: got %d %v", rec.Code, doc)
	}
	if rec, _ := ask(e, "DELETE", "/v1/admin/api-keys/"+id, admin, ""); rec.Code != 404 {
		t.Errorf("taking it back again: got %d", rec.Code)
	}
}

func TestAKeyIsHeldToItsWorkflows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.keyed(t, &w.minter)
	_, key := w.makeKey(t, e, `{"name": "a", "scopes": ["schedules:read", "ticks:work"], "workflows": ["a"]}`)
	_, doc := exchangeKey(e, key)
	token := "Bearer " + doc["access_token"].(string)
	for path, want := range map[string]int{
		"GET /v1/workflows/a/schedules/k": 200,
		"GET /v1/workflows/b/schedules/k": 403,
		"GET /v1/schedules":               403,
		"POST /v1/ticks/lease":            200, // which looks at the workflows of its body
	} {
		method, path, _ := strings.Cut(path, " ")
		rec, doc := ask(e, method, path, token, "")
		if rec.Code != want || want == 403 && doc["code"] != "workflow_not_allowed" {
			t.Errorf("%s: got %d %v", path, rec.Code, doc)
		}
	}
}

func TestAnExpiredKeyMakesNoTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.keyed(t, &w.minter)
	id, key := w.makeKey(t, e, `{"name": "a", "scopes": ["ticks:work"], "expires_at": "2099-01-01T00:00:00Z"}`)
	if _, err := w.pool.Exec(t.Context(), `UPDATE api_key SET expires_at = now() - interval '1 s' WHERE tenant_id = $1 AND id = $2`, w.acme.ID, id); err != nil {
		t.Fatal(err)
	}
	if rec, _ := exchangeKey(e, key); rec.Code != 401 {
		t.Errorf("got %d", rec.Code)
	}
}

func TestKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.keyed(t, &w.minter)
	admin := w.token(t, "acme", TenantAdmin)
	for body, pointers := range map[string][]string{
		`{}`:                             {"/name", "/scopes"},
		`{"name": "a", "scopes": ["x"]}`: {"/scopes/0"},
		`{"name": "a", "scopes": ["platform:admin", "ticks:work", "ticks:work"]}`:                {"/scopes/0", "/scopes/2"},
		`{"name": "a", "scopes": ["ticks:work"], "workflows": []}`:                               {"/workflows"},
		`{"name": "a", "scopes": ["tenant:admin"], "workflows": ["b c"]}`:                        {"/scopes/0", "/workflows/0"},
		`{"name": "a\u0007", "scopes": ["ticks:work"], "expires_at": "2001-01-01T00:00:00Z"}`:    {"/name", "/expires_at"},
		fmt.Sprintf(`{"name": %q, "scopes": ["ticks:work"]}`, strings.Repeat("a", maxKeyName+1)): {"/name"},
	} {
		rec, doc := ask(e, "POST", "/v1/admin/api-keys", admin, body)
		var got []string
		for _, f := range doc["errors"].([]any) {
			got = append(got, f.(map[string]any)["pointer"].(string))
		}
		if diff := cmp.Diff(pointers, got); rec.Code != 422 || diff != "" {
			t.Errorf("%s: got %d\n%s", body, rec.Code, diff)
		}
	}
	for _, key := range []string{"", "x", keyPrefix + strings.Repeat("A", 60), newKey()} {
		if rec, _ := exchangeKey(e, key); rec.Code != 401 && key != "" || rec.Code != 422 && key == "" {
			t.Errorf("%q: got %d", key, rec.Code)
		}
	}
	if rec, doc := exchangeKey(w.keyed(t, nil), newKey()); rec.Code != 403 || doc["code"] != "no_exchange" {
		t.Errorf("without a private key: got %d %v", rec.Code, doc)
	}
}

func TestKeysAreAtMostTheQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, _, err := Put(t.Context(), w.pool, "acme", Params{Quotas: Overrides(`{"api_keys": 1}`)})
	if err != nil {
		t.Fatal(err)
	}
	w.verifier.Tenants.forget(acme)
	e := w.keyed(t, &w.minter)
	const body = `{"name": "a", "scopes": ["ticks:work"]}`
	w.makeKey(t, e, body)
	rec, doc := ask(e, "POST", "/v1/admin/api-keys", w.token(t, "acme", TenantAdmin), body)
	if rec.Code != 403 || doc["code"] != "quota_exceeded" || doc["quota"] != "api_keys" || doc["limit"] != 1.0 || doc["used"] != 1.0 {
		t.Errorf("got %d %v", rec.Code, doc)
	}
}

func TestKeysMadeAtOnceAreAtMostTheQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := make(chan struct{})
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			<-start
			err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
				_, err := newAPIKey(t.Context(), tx, Identity{Tenant: w.acme.ID, Subject: "ann"}, APIKeyParams{Name: "a", Scopes: []string{TicksWork}}, 3, time.Now())
				return err
			})
			if f, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || f.Code != "quota_exceeded") {
				t.Error(err)
			}
		})
	}
	close(start)
	makers.Wait()
	if all, err := listKeys(t.Context(), w.pool, w.acme.ID, "", 100); err != nil || len(all) != 3 {
		t.Errorf("got %d keys, %v, want 3", len(all), err)
	}
}

func TestAnAnswerThatIsRepeatedHoldsNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.keyed(t, &w.minter)
	send := func() (*httptest.ResponseRecorder, string) {
		r := httptest.NewRequest("POST", "/v1/admin/api-keys", strings.NewReader(`{"name": "a", "scopes": ["ticks:work"]}`))
		r.Header.Set("Authorization", w.token(t, "acme", TenantAdmin))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "once")
		rec := httptest.NewRecorder()
		e.ServeHTTP(rec, r)
		return rec, rec.Body.String()
	}
	first, body := send()
	second, again := send()
	if first.Code != 201 || second.Code != 201 || !strings.Contains(body, keyPrefix) || strings.Contains(again, keyPrefix) {
		t.Errorf("got %d %s, then %d %s", first.Code, body, second.Code, again)
	}
	if before, _, _ := strings.Cut(body, `,"key":`); again != before+"}" || first.Header().Get("Idempotency-Replayed") != "" || second.Header().Get("Idempotency-Replayed") != "true" {
		t.Errorf("got %v %s, then %v %s", first.Header(), body, second.Header(), again)
	}
	var stored int
	err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency WHERE tenant_id = $1 AND convert_from(answer, 'UTF8') LIKE '%carillon_key_%'`, w.acme.ID).Scan(&stored)
	if err != nil || stored != 0 {
		t.Errorf("got %d answers that hold a key, %v", stored, err)
	}
}
