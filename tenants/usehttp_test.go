package tenants

import (
	"context"
	"log/slog"
	"testing"

	"github.com/carillonhq/carillon/internal/web"
)

func TestQuotasTellTheirUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quotas(t, `{"schedules": 10, "payload_bytes": 7}`)
	keys := w.keyed(t, &w.minter)
	if rec, _ := ask(keys, "POST", "/v1/admin/api-keys", w.token(t, "other", TenantAdmin), `{"name": "a", "scopes": ["ticks:work"]}`); rec.Code != 201 {
		t.Fatal(rec.Body)
	}
	e := web.New(web.Options{Log: slog.New(slog.DiscardHandler)})
	Uses{DB: w.pool, Directory: w.verifier.Tenants, Meters: map[string]Meter{
		"schedules": func(context.Context, ID) (int, error) { return 8, nil },
	}}.Routes(e.Group("", Authenticate(w.verifier)))
	rec, doc := ask(e, "GET", "/v1/quotas", w.token(t, "other", TenantAdmin), "")
	if rec.Code != 200 {
		t.Fatal(rec.Body)
	}
	all := doc["quotas"].(map[string]any)
	for name, want := range map[string][3]any{
		"schedules":           {10.0, 8.0, true},
		"payload_bytes":       {7.0, nil, false},
		"api_keys":            {50.0, 1.0, false},
		"endpoints":           {10.0, 0.0, false},
		"requests_per_second": {100.0, 0.0, false},
	} {
		one := all[name].(map[string]any)
		if got := [3]any{one["limit"], one["used"], one["soft"]}; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if len(all) != 23 {
		t.Errorf("got %d quotas, want 23", len(all))
	}
}
