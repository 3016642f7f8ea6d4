package migrations_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/postgres/silent"
	"github.com/carillonhq/carillon/migrations"
)

// A busy machine takes longer than a second to accept each connection of a migration.
func TestASlowServerIsMigrated(t *testing.T) {
	t.Parallel()
	at, err := url.Parse(postgrestest.EmptyURL(t))
	if err != nil {
		t.Fatal(err)
	}
	slow, err := silent.New(t.Context(), at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Close)
	slow.Delay(1100 * time.Millisecond)
	at.Host = slow.Address()
	query := at.Query()
	query.Del("connect_timeout")
	at.RawQuery = query.Encode()
	if applied, err := migrations.Up(t.Context(), at.String(), migrations.Options{}); err != nil || applied == 0 {
		t.Errorf("%d migrations were applied: %v", applied, err)
	}
}
