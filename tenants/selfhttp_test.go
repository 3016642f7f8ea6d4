package tenants

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/internal/web"
)

func TestTheCallerIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := w.keyed(t, &w.minter)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	id, key := w.makeKey(t, keys, `{"name": "a", "scopes": ["ticks:work", "schedules:read"], "workflows": ["own"], "expires_at": "`+end.Format(time.RFC3339)+`"}`)
	e := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	Uses{DB: w.pool, Directory: w.verifier.Tenants}.Routes(e.Group("", Authenticate(w.verifier)))
	for token, want := range map[string]map[string]any{
		"Bearer " + key: {
			"tenant": "acme", "actor": id, "scopes": []any{"ticks:work", "schedules:read"}, "workflows": []any{"own"}, "expires_at": end.Format(time.RFC3339),
		},
		w.token(t, "acme", TenantRead): {"tenant": "acme", "scopes": []any{"tenant:read"}, "workflows": nil},
		w.token(t, "acme"):             {"tenant": "acme", "scopes": []any{}, "workflows": nil},
		w.token(t, "", PlatformAdmin):  {"tenant": nil, "scopes": []any{"platform:admin"}, "workflows": nil},
	} {
		rec, doc := ask(e, "GET", "/v1/self", token, "")
		if rec.Code != 200 {
			t.Fatal(rec.Body)
		}
		for name, value := range want {
			if diff := cmp.Diff(value, doc[name]); diff != "" {
				t.Errorf("%v: %s: %s", want, name, diff)
			}
		}
		if doc["expires_at"] == nil || doc["actor"] == "" {
			t.Errorf("got %v", doc)
		}
		if quotas := doc["quotas"].(map[string]any); (len(quotas) > 0) != (want["tenant"] != nil) {
			t.Errorf("got %v", quotas)
		}
	}
	if rec, _ := ask(e, "GET", "/v1/self", "", ""); rec.Code != 401 {
		t.Errorf("got %d", rec.Code)
	}
}
