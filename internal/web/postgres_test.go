package web_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

func TestMain(m *testing.M) { postgrestest.MainNoLeaks(m) }

func addTenant(t *testing.T, pool *pgxpool.Pool, name string) (id int32) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `INSERT INTO tenant (name) VALUES ($1) RETURNING id`, name).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// once sends a request with a key in a transaction of its own.
func once(ctx context.Context, pool *pgxpool.Pool, tenant int32, route, key, body string, run func() (int, []byte, error)) (status int, answer []byte, replayed bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		status, answer, replayed, err = web.Idempotent(ctx, tx, tenant, route, key, []byte(body), run)
		return err
	})
	return status, answer, replayed, err
}

func codeOf(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code
	}
	return ""
}

func TestIdempotent(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	mine, other := addTenant(t, pool, "mine"), addTenant(t, pool, "other")
	runs := 0
	run := func() (int, []byte, error) { runs++; return 202, []byte(`{"n": 1}`), nil }
	send := func(tenant int32, route, key, body string, wantReplayed bool) {
		t.Helper()
		status, answer, replayed, err := once(t.Context(), pool, tenant, route, key, body, run)
		if err != nil || status != 202 || string(answer) != `{"n": 1}` || replayed != wantReplayed {
			t.Errorf("got %d %s %v %v", status, answer, replayed, err)
		}
	}
	send(mine, "POST /a", "k", "body", false)
	send(mine, "POST /a", "k", "body", true)
	send(mine, "POST /b", "k", "body", false)
	send(mine, "POST /a", "l", "body", false)
	send(other, "POST /a", "k", "other body", false)
	if runs != 4 {
		t.Errorf("ran %d times, want 4", runs)
	}
	if _, _, _, err := once(t.Context(), pool, mine, "POST /a", "k", "another", run); codeOf(err) != "idempotency_key_reused" {
		t.Errorf("got %v for another body", err)
	}

	failed := errors.New("not this time")
	if _, _, _, err := once(t.Context(), pool, mine, "POST /a", "m", "body", func() (int, []byte, error) { return 0, nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	send(mine, "POST /a", "m", "body", false)

	if status, answer, _, err := once(t.Context(), pool, mine, "POST /a", "empty", "", func() (int, []byte, error) { return 204, nil, nil }); err != nil || status != 204 || len(answer) != 0 {
		t.Errorf("got %d %s %v for an answer without a body", status, answer, err)
	}

	if _, err := pool.Exec(t.Context(), `UPDATE idempotency SET created_at = now() - interval '24 hours 1 second' WHERE tenant_id = $1`, mine); err != nil {
		t.Fatal(err)
	}
	send(mine, "POST /a", "k", "another", false)
	send(mine, "POST /a", "k", "another", true)
	send(other, "POST /a", "k", "other body", true)
}

func TestIdempotentInFlight(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant := addTenant(t, pool, "mine")
	status, answer, _, err := once(t.Context(), pool, tenant, "POST /a", "k", "body", func() (int, []byte, error) {
		_, _, _, err := once(t.Context(), pool, tenant, "POST /a", "k", "body", func() (int, []byte, error) {
			t.Error("ran twice at once")
			return 500, nil, nil
		})
		if codeOf(err) != "idempotency_in_flight" {
			t.Errorf("got %v while in flight", err)
		}
		if _, _, _, err := once(t.Context(), pool, tenant, "POST /a", "other", "body", func() (int, []byte, error) { return 200, nil, nil }); err != nil {
			t.Errorf("another key had to wait: %v", err)
		}
		return 200, []byte("1"), nil
	})
	if err != nil || status != 200 || !bytes.Equal(answer, []byte("1")) {
		t.Errorf("got %d %s %v", status, answer, err)
	}
}
