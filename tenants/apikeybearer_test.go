package tenants

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// An API key is a credential itself, until it is deleted, has expired, or was rotated away; within the cache's two seconds in other
// processes.
func TestAnAPIKeyIsACredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := time.Now()
	w.verifier.Tenants.now = func() time.Time { return clock }
	e := w.keyed(t, &w.minter)
	const path = "/v1/schedules"
	want := func(what string, key string, status int) {
		t.Helper()
		if rec, doc := ask(e, "GET", path, "Bearer "+key, ""); rec.Code != status || status == 401 && (doc["code"] != "invalid_token" || rec.Header().Get("WWW-Authenticate") == "") {
			t.Errorf("%s: got %d %s", what, rec.Code, rec.Body)
		}
	}
	id, key := w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	if rec, _ := ask(e, "GET", path, "Bearer "+key, ""); rec.Code != 200 || rec.Body.String() != fmt.Sprintf("%q\n", id) && rec.Body.String() != fmt.Sprintf("%q", id) {
		t.Errorf("got %d %s, want the key's id as actor", rec.Code, rec.Body)
	}
	_, worker := w.makeKey(t, e, `{"name": "worker", "scopes": ["ticks:work"]}`)
	want("another scope", worker, 403)
	_, limited := w.makeKey(t, e, `{"name": "limited", "scopes": ["schedules:read"], "workflows": ["own"]}`)
	want("a limited key", limited, 403)
	for status, workflow := range map[int]string{200: "own", 403: "other"} {
		if rec, _ := ask(e, "GET", "/v1/workflows/"+workflow+"/schedules/k", "Bearer "+limited, ""); rec.Code != status {
			t.Errorf("%s: got %d", workflow, rec.Code)
		}
	}
	for what, bad := range map[string]string{
		"unknown": newKey(), "a wrong checksum": key[:len(key)-1] + "z", "cut": key[:len(key)-1], "only the prefix": keyPrefix, "longer": key + "0",
	} {
		want(what, bad, 401)
	}
	second := w.rotateKey(t, e, id)
	want("the previous key", key, 200)
	want("the new key", second, 200)
	if _, err := w.pool.Exec(t.Context(), `UPDATE api_key SET previous_expires_at = now() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(cacheFor)
	want("the previous key after its time", key, 401)
	if _, err := w.pool.Exec(t.Context(), `UPDATE api_key SET expires_at = now() WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(cacheFor)
	want("an expired key", second, 401)

	id, key = w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	want("a further key", key, 200)
	if rec, _ := ask(e, "DELETE", "/v1/admin/api-keys/"+id, w.token(t, "acme", TenantAdmin), ""); rec.Code != 204 {
		t.Fatalf("got %d", rec.Code)
	}
	want("a deleted key, at once", key, 401)
	_, key = w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	want("a key before its tenant is suspended", key, 200)
	if _, err := w.pool.Exec(t.Context(), `UPDATE tenant SET status = 'suspended' WHERE name = 'acme'`); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(cacheFor)
	want("a key of a suspended tenant", key, 401)
}

// A key with a wrong checksum is refused without a query. Another bad key is looked up at most once in two seconds, and all of them at a
// limited rate. That does not stop the look-up of a key that is in use.
func TestBadAPIKeysAreCheap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made, err := newAPIKey(t.Context(), tx, Identity{Tenant: w.acme.ID, Subject: "ann"}, APIKeyParams{Name: "a", Scopes: []string{SchedulesRead}}, 10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := &asked{DB: w.pool}
	d := NewDirectory(db)
	clock := time.Now()
	d.now = func() time.Time { return clock }
	d.lookups.now = d.now
	ctx := withAddress(context.Background(), "203.0.113.7")
	lookups := func(key string) (int, error) {
		before := db.queries
		_, err := d.byKey(ctx, key)
		return db.queries - before, err
	}
	if n, err := lookups(made.Key); n != 1 || err != nil {
		t.Fatalf("got %d look-ups, %v", n, err)
	}
	if n, err := lookups(made.Key[:len(made.Key)-1] + "z"); n != 0 || err == nil {
		t.Errorf("a wrong checksum: got %d look-ups, %v", n, err)
	}
	bad := newKey()
	for want := range 2 {
		if n, err := lookups(bad); n != 1-want || err == nil {
			t.Errorf("an unknown key: got %d look-ups, %v", n, err)
		}
	}
	n, limited := 0, false
	for range 2 * exchangeRate.burst {
		one, err := lookups(newKey())
		n, limited = n+one, limited || limitedBy(err)
	}
	if n > exchangeRate.burst || !limited {
		t.Errorf("%d unknown keys were looked up, limited %t", n, limited)
	}
	clock = clock.Add(cacheFor)
	for range exchangeRate.perSec * 3 { // spends what the two seconds have refilled
		_, _ = lookups(newKey())
	}
	if n, err := lookups(made.Key); n != 1 || err != nil {
		t.Errorf("the key in use: got %d look-ups, %v", n, err)
	}
}
