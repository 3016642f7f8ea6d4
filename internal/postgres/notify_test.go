package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// Notifications are sent once their transaction is committed, each once, and never from a transaction that is rolled back.
func TestNotificationsFollowTheCommit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := postgrestest.Database(t)
	listener, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Release()
	if _, err := listener.Exec(ctx, `LISTEN test`); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.Exec(ctx, `DO $$ BEGIN EXECUTE format('LISTEN %I', current_schema() || '.test'); END $$`); err != nil {
		t.Fatal(err)
	}
	rolledBack := errors.New("rolled back")
	notify := func(ctx context.Context, tx pgx.Tx, channel, payload string) {
		if err := postgres.Notify(ctx, tx, channel, payload); err != nil {
			t.Error(err)
		}
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		notify(ctx, tx, "test", "lost")
		return rolledBack
	})
	if !errors.Is(err, rolledBack) {
		t.Fatal(err)
	}
	tenants := postgrestest.TenantPool(t, pool, 1)
	for _, db := range []postgres.DB{pool, tenants} {
		err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			notify(ctx, tx, "test", "one")
			notify(ctx, tx, "test", "one")
			_ = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
				notify(ctx, inner, ".test", "two")
				return rolledBack
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"one", "two"} {
			n, err := listener.Conn().WaitForNotification(ctx)
			if err != nil || n.Payload != want {
				t.Fatalf("got %+v, %v, want %s", n, err, want)
			}
		}
	}
}
