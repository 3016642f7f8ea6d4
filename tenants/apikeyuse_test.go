package tenants

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// keepUses stores the uses that the directory remembers, as a process that ends does.
func (w *world) keepUses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log strings.Builder
	w.verifier.Tenants.StoreUses(ctx, slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

func TestAKeyTellsWhenItWasUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := time.Now()
	w.verifier.Tenants.now = func() time.Time { return clock }
	w.verifier.Tenants.db = postgrestest.As(t, w.pool, postgres.PlatformRole)
	e := w.keyed(t, &w.minter)
	id, key := w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	unused, _ := w.makeKey(t, e, `{"name": "other", "scopes": ["schedules:read"]}`)
	used := func(id string) any {
		t.Helper()
		for _, k := range w.shownKeys(t, e) {
			if k := k.(map[string]any); k["id"] == id {
				return k["last_used_at"]
			}
		}
		t.Fatalf("there is no key %s", id)
		return nil
	}
	recent := func(after string) {
		t.Helper()
		w.keepUses(t)
		text, _ := used(id).(string)
		at, err := time.Parse(time.RFC3339, text)
		if ago := time.Since(at); err != nil || ago < -time.Minute || ago > 30*time.Minute {
			t.Errorf("after %s it was used %q", after, text)
		}
	}
	long := func() {
		t.Helper()
		if _, err := w.pool.Exec(t.Context(), `UPDATE api_key SET last_used_at = clock_timestamp() - interval '1 hour' WHERE id = $1`, id); err != nil {
			t.Fatal(err)
		}
	}
	w.keepUses(t)
	if at := used(id); at != nil {
		t.Errorf("before it was used: %v", at)
	}
	_, doc := exchangeKey(e, key)
	recent("an exchange")
	long()
	if rec, _ := ask(e, "GET", "/v1/schedules", "Bearer "+doc["access_token"].(string), ""); rec.Code != 200 {
		t.Fatalf("got %d", rec.Code)
	}
	recent("a request with its token")
	before := used(id)
	clock = clock.Add(5 * time.Second)
	ask(e, "GET", "/v1/schedules", "Bearer "+doc["access_token"].(string), "")
	w.keepUses(t)
	if after := used(id); after != before {
		t.Errorf("it is written again at once: %v, then %v", before, after)
	}
	if at := used(unused); at != nil {
		t.Errorf("another key was used %v", at)
	}
}

func TestUsesAreRememberedUntilTheyAreStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.verifier.Tenants
	d.uses.note(keyName{w.acme.ID, "key_a"}, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.storeUses(ctx); err == nil || len(d.uses.take()) != 1 {
		t.Errorf("got %v, or the use was forgotten", err)
	}
	for n := range usesMax + 10 {
		d.uses.note(keyName{w.acme.ID, fmt.Sprint("key_", n)}, time.Now())
	}
	if n := len(d.uses.last); n != usesMax {
		t.Errorf("%d are remembered", n)
	}
	err := d.storeUses(t.Context())
	for errors.Is(err, context.DeadlineExceeded) { // it has five seconds for all; what it did not store, it keeps
		err = d.storeUses(t.Context())
	}
	if err != nil || len(d.uses.last) != 0 {
		t.Errorf("got %v, %d are remembered", err, len(d.uses.last))
	}
}

// The audit tells that a key is exchanged, and from where, but not each time.
func TestExchangesAreAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := time.Now()
	w.verifier.Tenants.now = func() time.Time { return clock }
	e := w.keyed(t, &w.minter)
	id, key := w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	exchange := func(address string, want int) {
		t.Helper()
		r := httptest.NewRequest("POST", TokenRoute, strings.NewReader(fmt.Sprintf(`{"api_key": %q}`, key)))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = address
		rec := httptest.NewRecorder()
		e.ServeHTTP(rec, r)
		if rec.Code != want {
			t.Errorf("from %s: got %d %s", address, rec.Code, rec.Body)
		}
	}
	exchange("203.0.113.7:1000", 200)
	exchange("203.0.113.7:1001", 200)
	exchange("203.0.113.8:1000", 200)
	clock = clock.Add(exchangeAuditGap + time.Second)
	exchange("203.0.113.7:1002", 200)
	w.rotateKey(t, e, id)
	ask(e, "DELETE", "/v1/admin/api-keys/"+id, w.token(t, "acme", TenantAdmin), "")
	exchange("203.0.113.9:1000", 401)

	rows, _ := w.pool.Query(t.Context(), `
		SELECT concat_ws(' ', action, CASE WHEN actor = $1 THEN 'key' ELSE actor END, host(remote), target = 'admin/api-keys/' || $1)
		FROM audit
		WHERE action LIKE 'api_key.%'
		ORDER BY id`, id)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"api_key.make ann 192.0.2.1 t",
		"api_key.exchange key 203.0.113.7 t", "api_key.exchange key 203.0.113.8 t", "api_key.exchange key 203.0.113.7 t",
		"api_key.rotate ann 192.0.2.1 t", "api_key.delete ann 192.0.2.1 t",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
