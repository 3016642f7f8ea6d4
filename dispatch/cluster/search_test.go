package cluster_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// A search tells how many index entries it has read, the dead ones of an old snapshot included, whether it finds a row or none.
func TestASearchCountsTheIndexEntriesThatItReads(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`ALTER TABLE event SET (autovacuum_enabled = off)`) // with statistics of these few rows, the planner may not use the index
	h.OldSnapshot()
	const dead = 700
	h.Exec(`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at)
		SELECT $1, 'e', n::text, 'tick.failed', '', 1, now(), now(), '2000-01-01'::timestamptz + n * interval '1 s' FROM generate_series(1, $2::int) n`, h.Tenant, dead)
	h.Exec(`DELETE FROM event`)
	search := func() (found []int64, entries int) {
		t.Helper()
		sql := cluster.WithEntries(`SELECT extract(epoch FROM due_at)::bigint AS at FROM event WHERE due_at < '2001-01-01' ORDER BY due_at LIMIT 2`, "event_due")
		rows, _ := h.Pool.Query(t.Context(), sql) // ForEachRow reports the error
		var at pgtype.Int8
		if _, err := pgx.ForEachRow(rows, []any{&at, &entries}, func() error {
			if at.Valid {
				found = append(found, at.Int64)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return found, entries
	}
	if found, entries := search(); len(found) != 0 || entries < dead {
		t.Errorf("found %v after %d entries, want at least %d", found, entries, dead)
	}
	h.Exec(`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at)
		SELECT $1, 'e', n::text, 'tick.failed', '', 1, now(), now(), '2000-06-01'::timestamptz + n * interval '1 s' FROM generate_series(1, 3) n`, h.Tenant)
	if found, entries := search(); len(found) != 2 || found[0] >= found[1] || entries < dead {
		t.Errorf("found %v after %d entries, want two after at least %d", found, entries, dead)
	}
}

// What the same connection has read before does not count: PostgreSQL keeps its counters for up to a second before it adds them to the statistics.
func TestASearchCountsNothingThatWasReadBefore(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`ALTER TABLE event SET (autovacuum_enabled = off)`) // with statistics of these few rows, the planner may not use the index
	h.Exec(`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at)
		SELECT $1, 'e', n::text, 'tick.failed', '', 1, now(), now(), '2000-01-01'::timestamptz + n * interval '1 s' FROM generate_series(1, 700) n`, h.Tenant)
	conn, err := h.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	const due = `SELECT due_at FROM event WHERE due_at < '2001-01-01' ORDER BY due_at`
	read := 0
	for range 3 {
		rows, _ := conn.Query(t.Context(), due) // ForEachRow reports the error
		if _, err := pgx.ForEachRow(rows, []any{nil}, func() error { read++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	var first pgtype.Timestamptz
	var entries int
	if err := conn.QueryRow(t.Context(), cluster.WithEntries(due+` LIMIT 1`, "event_due")).Scan(&first, &entries); err != nil {
		t.Fatal(err)
	}
	if read != 2100 || !first.Valid || entries != 1 {
		t.Errorf("after %d reads, the search found %v and counted %d entries, want 1", read, first.Time, entries)
	}
}
