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

// What waits for the COMMIT of a transaction is called once it has committed, and never if it is rolled back, in part or in whole.
func TestCallsFollowTheCommit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := postgrestest.Database(t)
	rolledBack := errors.New("rolled back")
	for name, one := range map[string]struct {
		run  func(tx pgx.Tx, call func()) error
		want int
	}{
		"committed":   {func(tx pgx.Tx, call func()) error { postgres.AfterCommit(tx, call); return nil }, 1},
		"rolled back": {func(tx pgx.Tx, call func()) error { postgres.AfterCommit(tx, call); return rolledBack }, 0},
		"savepoint": {func(tx pgx.Tx, call func()) error {
			return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { postgres.AfterCommit(inner, call); return nil })
		}, 1},
		"savepoint rolled back": {func(tx pgx.Tx, call func()) error {
			_ = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { postgres.AfterCommit(inner, call); return rolledBack })
			postgres.AfterCommit(tx, call)
			return nil
		}, 1},
		"failed": {func(tx pgx.Tx, call func()) error {
			postgres.AfterCommit(tx, call)
			_, err := tx.Exec(ctx, `SELECT 1 / 0`)
			if err == nil {
				t.Error("it divides by zero")
			}
			return nil
		}, 0},
	} {
		called := 0
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			err := one.run(tx, func() { called++ })
			if called != 0 {
				t.Errorf("%s: called before the commit", name)
			}
			return err
		})
		if called != one.want {
			t.Errorf("%s: called %d times, want %d (%v)", name, called, one.want, err)
		}
	}
}
