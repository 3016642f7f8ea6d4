package tenants

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
)

// rotateKey rotates an API key of acme's and returns its new secret.
func (w *world) rotateKey(t *testing.T, e *echo.Echo, id string) string {
	t.Helper()
	rec, doc := ask(e, "POST", "/v1/admin/api-keys/"+id+"/rotate", w.token(t, "acme", TenantAdmin), "")
	if rec.Code != 201 || doc["id"] != id {
		t.Fatalf("got %d %s", rec.Code, rec.Body)
	}
	return doc["key"].(string)
}

func (w *world) shownKeys(t *testing.T, e *echo.Echo) []any {
	t.Helper()
	rec, doc := ask(e, "GET", "/v1/admin/api-keys", w.token(t, "acme", TenantAdmin), "")
	if rec.Code != 200 || strings.Contains(rec.Body.String(), keyPrefix) {
		t.Fatalf("got %d %s", rec.Code, rec.Body)
	}
	return doc["items"].([]any)
}

// The key before a rotation counts for a day, and no key before that one.
func TestTheKeyBeforeARotationCountsForADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.keyed(t, &w.minter)
	exchanges := func(key string, want int) {
		t.Helper()
		if rec, _ := exchangeKey(e, key); rec.Code != want {
			t.Errorf("got %d %s, want %d", rec.Code, rec.Body, want)
		}
	}
	id, first := w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	if shown := w.shownKeys(t, e)[0].(map[string]any); shown["previous_expires_at"] != nil {
		t.Errorf("before: %v", shown)
	}
	second := w.rotateKey(t, e, id)
	exchanges(first, 200)
	exchanges(second, 200)
	shown := w.shownKeys(t, e)
	until, err := time.Parse(time.RFC3339, shown[0].(map[string]any)["previous_expires_at"].(string))
	if left := time.Until(until); err != nil || len(shown) != 1 || left < 23*time.Hour || left > 25*time.Hour {
		t.Errorf("the key before counts for %v, %v: %v", left, err, shown)
	}

	third := w.rotateKey(t, e, id)
	exchanges(first, 401)
	exchanges(second, 200)
	exchanges(third, 200)

	passes := func(until string) {
		t.Helper()
		if _, err := w.pool.Exec(t.Context(), `UPDATE api_key SET previous_expires_at = clock_timestamp() + $2::interval WHERE id = $1`, id, until); err != nil {
			t.Fatal(err)
		}
	}
	passes("5 minutes")
	if rec, doc := exchangeKey(e, second); rec.Code != 200 || doc["expires_in"].(float64) > 300 {
		t.Errorf("its tokens outlive it: got %d %v", rec.Code, doc)
	}
	passes("-1 second")
	exchanges(second, 401)
	exchanges(third, 200)
	if shown := w.shownKeys(t, e)[0].(map[string]any); shown["previous_expires_at"] != nil {
		t.Errorf("afterwards: %v", shown)
	}
	passes("1 day")
	if rec, _ := ask(e, "DELETE", "/v1/admin/api-keys/"+id, w.token(t, "acme", TenantAdmin), ""); rec.Code != 204 {
		t.Errorf("taking it back: got %d", rec.Code)
	}
	exchanges(second, 401)
	exchanges(third, 401)
}

func TestWhoMayRotateAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.keyed(t, &w.minter)
	id, key := w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	for token, want := range map[string]int{w.token(t, "other", TenantAdmin): 404, w.token(t, "acme", SchedulesWrite): 403} {
		if rec, _ := ask(e, "POST", "/v1/admin/api-keys/"+id+"/rotate", token, ""); rec.Code != want {
			t.Errorf("got %d, want %d", rec.Code, want)
		}
	}
	if rec, _ := ask(e, "POST", "/v1/admin/api-keys/key_x/rotate", w.token(t, "acme", TenantAdmin), ""); rec.Code != 404 {
		t.Errorf("a key that is not there: got %d", rec.Code)
	}
	if rec, _ := exchangeKey(e, key); rec.Code != 200 {
		t.Errorf("the key afterwards: got %d", rec.Code)
	}
}

// A rotation that is repeated, as its answer was lost, does not end the key that programs use.
func TestARepeatedRotationChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.keyed(t, &w.minter)
	id, first := w.makeKey(t, e, `{"name": "ci", "scopes": ["schedules:read"]}`)
	for _, shows := range []bool{true, false} {
		r := httptest.NewRequest("POST", "/v1/admin/api-keys/"+id+"/rotate", nil)
		r.Header.Set("Authorization", w.token(t, "acme", TenantAdmin))
		r.Header.Set("Idempotency-Key", "once")
		rec := httptest.NewRecorder()
		e.ServeHTTP(rec, r)
		if rec.Code != 201 || strings.Contains(rec.Body.String(), keyPrefix) != shows {
			t.Errorf("got %d %s", rec.Code, rec.Body)
		}
	}
	if rec, _ := exchangeKey(e, first); rec.Code != 200 {
		t.Errorf("the key before: got %d", rec.Code)
	}
}
