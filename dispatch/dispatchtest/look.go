package dispatchtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/schedules/cohorts"
)

// Recording is a process on a pool of its own that keeps the statements it runs.
func (h *Carillon) Recording() (*Process, *Recorder) {
	h.T.Helper()
	r := &Recorder{Ran: map[string][]any{}}
	h.Traced(r)
	return h.Process(), r
}

// OldSnapshot holds a snapshot of the database open until the test ends.
func (h *Carillon) OldSnapshot() {
	h.T.Helper()
	conn := h.connect()
	h.T.Cleanup(func() { h.stillOpen(conn, "the old snapshot") })
	for _, sql := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM cohort`} {
		if _, err := conn.Exec(h.T.Context(), sql); err != nil {
			h.T.Fatal(err)
		}
	}
}

// Entries runs each recorded statement that contains one of the words again, and returns how many index entries it reads, dead ones
// included. It runs a statement whose first argument is a shard for every shard. Before that it runs ANALYZE, as autovacuum may do at any
// time: a plan for fresh statistics must not read more.
func (h *Carillon) Entries(r *Recorder, words ...string) map[string]int {
	h.T.Helper()
	conn, err := h.Pool.Acquire(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	defer conn.Release()
	h.analyze(conn)
	total := func(tx pgx.Tx) (n int) { // by this connection
		h.T.Helper()
		err := tx.QueryRow(h.T.Context(), `SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_stat_user_indexes`).Scan(&n)
		if err != nil {
			h.T.Fatal(err)
		}
		return n
	}
	read := map[string]int{}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for sql, args := range r.Ran {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(sql, word) }) {
			continue
		}
		tx, err := conn.Begin(h.T.Context())
		if err != nil {
			h.T.Fatal(err)
		}
		before := total(tx)
		args, runs := slices.Clone(args), 1
		ofShard := false
		if len(args) > 0 {
			_, ofShard = args[0].(int16)
		}
		if ofShard {
			runs = cohorts.Shards
		}
		for run := range runs {
			if ofShard {
				args[0] = int16(run)
			}
			if _, err := tx.Exec(h.T.Context(), sql, args...); err != nil {
				h.T.Fatalf("%v:\n%s", err, sql)
			}
		}
		read[sql] = total(tx) - before
		_ = tx.Rollback(h.T.Context())
	}
	if len(read) < len(words) {
		h.T.Fatalf("%d statements contain %q", len(read), words)
	}
	return read
}

// analyze runs ANALYZE on each table that autovacuum may analyze.
func (h *Carillon) analyze(conn *pgxpool.Conn) {
	h.T.Helper()
	var tables string
	err := conn.QueryRow(h.T.Context(), `
		SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
		WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND 'autovacuum_enabled=off' <> ALL (coalesce(reloptions, '{}'))`).Scan(&tables)
	if err == nil {
		_, err = conn.Exec(h.T.Context(), `ANALYZE `+tables)
	}
	if err != nil {
		h.T.Fatal(err)
	}
}

// Grown reports statements that read more than twice as much as before.
func Grown(t *testing.T, before, after map[string]int) {
	t.Helper()
	for sql, n := range before {
		t.Logf("%d index entries read, then %d: %.60s", n, after[sql], sql)
		if after[sql] > 2*n+100 {
			t.Errorf("%d index entries read, and %d at the start:\n%s", after[sql], n, sql)
		}
	}
}
