package dispatchtest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/postgres"
)

// Reserve takes the lock of a task until the test ends: only the test runs its batches, and no process.
func (h *Carillon) Reserve(task string) {
	h.T.Helper()
	conn := h.connect()
	h.T.Cleanup(func() { h.stillOpen(conn, "the task's lock") })
	if _, err := conn.Exec(h.T.Context(), `SELECT pg_advisory_lock($1, $2)`, postgres.TaskLocks, upkeep.TaskLock(task)); err != nil {
		h.T.Fatal(err)
	}
}

// connect opens a connection that may be idle, or in a transaction, for as long as the test takes.
func (h *Carillon) connect() *pgx.Conn {
	h.T.Helper()
	config := h.Pool.Config().ConnConfig.Copy()
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0" // a test beside load may take long
	conn, err := pgx.ConnectConfig(h.T.Context(), config)
	if err != nil {
		h.T.Fatal(err)
	}
	return conn
}

// stillOpen closes a connection, and fails if the server ended it before, together with what it held.
func (h *Carillon) stillOpen(conn *pgx.Conn, held string) {
	h.T.Helper()
	if _, err := conn.Exec(context.Background(), `SELECT 1`); err != nil {
		h.T.Errorf("%s ended before the test: %v", held, err)
	}
	_ = conn.Close(context.Background())
}

// StoreDone stores n chunks that were done, and n answers that were given, long ago.
func (h *Carillon) StoreDone(n int) {
	h.T.Helper()
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at, opened_at, done_at)
		SELECT 0, $1, 0, 'small', at, 1, 1, 1, '{w}', '\x00', at, at, at
		FROM (SELECT now() - interval '61 minutes' AS at FROM generate_series(1, $2::int)) n`, h.Tenant, n)
	h.Exec(`
		INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer, created_at)
		SELECT $1, '/v1/syncs', n::text, '\x00', 200, '{}', now() - interval '25 hours'
		FROM generate_series(1, $2::int) n`, h.Tenant, n)
}
