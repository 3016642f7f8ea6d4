package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

func TestTheDoctorKnowsWhatIsSealed(t *testing.T) {
	t.Parallel()
	sealed, err := keyset.New()
	if err != nil {
		t.Fatal(err)
	}
	other, err := keyset.New()
	if err != nil {
		t.Fatal(err)
	}
	pool := postgrestest.Database(t)
	put := func(name string, k *keyset.Keyset) {
		t.Helper()
		h, err := wire(t.Context(), options{
			databaseURL: pool.Config().ConnString(), connections: 10, role: "all", outbound: web.Outbound{}, keyset: k, log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer h.close()
		tenant, err := tenants.Ensure(t.Context(), h.platform, "acme", tenants.Wide())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.dispatch.Pusher.Endpoints.PutEndpoint(postgres.ForTenant(t.Context(), int32(tenant.ID)), tenant.ID, name, push.EndpointParams{URL: "https://example.com/"}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(k *keyset.Keyset, want string) {
		t.Helper()
		if f := examineSecrets(t.Context(), pool, k); f.Status != want || (f.Remedy == "") != (want == "ok") {
			t.Errorf("got %+v, want %s", f, want)
		}
	}
	look(nil, "warning")
	look(sealed, "ok")
	put("e", nil)
	look(sealed, "warning")
	put("e", sealed)
	look(sealed, "ok")
	look(nil, "failed")
	look(other, "failed")
}

func TestDevKeepsItsKeyset(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const old = `{"issuer_key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "tokens": {"token": "a"}}`
	if err := os.WriteFile(filepath.Join(dir, "dev.json"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := openDevKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := openDevKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first.kept.Keyset == "" || second.kept.Keyset != first.kept.Keyset || string(second.kept.Seed) != "01234567890123456789012345678901" || second.kept.Tokens.Token != "a" {
		t.Errorf("got %+v, then %+v", first.kept, second.kept)
	}
	if first.sealing(false) == nil {
		t.Error("it is not used")
	}
	passing, err := openDevKeys("")
	if err != nil {
		t.Fatal(err)
	}
	if passing.sealing(true) == nil || passing.sealing(false) != nil {
		t.Error("a keyset that is not kept seals what is")
	}
}
