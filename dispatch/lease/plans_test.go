package lease_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/postgres"
)

// leased leases two ticks of the herd, completes one of them and fails the other.
func leased(t *testing.T, h *dispatchtest.Carillon) {
	t.Helper()
	for i, one := range h.Lease("herd", 2) {
		f := lease.Finish{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}
		if i == 1 {
			f.Outcome = "fail"
		}
		if got, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{f}); err != nil || got[0] != lease.Done {
			t.Fatal(got, err)
		}
	}
}

// PostgreSQL plans the statements of leases and finishes once for a connection: planning them takes longer than their work. After
// upkeep has looked at tables that have grown, the plans suit them.
func TestLeasesAndFinishesArePlannedOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const n = 8
	h.ReadyHerd("herd", 2*n+2)
	h.Many(0, 100)
	h.Exec(`ANALYZE`)
	for range n { // one after another, so that all are on one connection
		leased(t, h)
	}
	ctx := postgres.ForTenant(t.Context(), int32(h.Tenant))
	rows, _ := h.Config.API.Query(ctx, `SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements`) // ForEachRow reports the error
	var statement string
	var generic, custom int
	once := map[string]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&statement, &generic, &custom}, func() error {
		for _, write := range []string{"UPDATE schedule_state", "UPDATE tick", "INSERT INTO attempt", "UPDATE ready", "INSERT INTO lease", "INSERT INTO delayed", "FROM ready"} {
			if !strings.Contains(statement, write) {
				continue
			}
			once[write] = once[write] || generic > 1
			if custom > 1 && generic+custom > n/2 {
				t.Errorf("planned %d times: %s", custom, statement)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(once) != 7 {
		t.Errorf("the connection has only statements of %v", once)
	}
	for write, is := range once {
		if !is {
			t.Errorf("no statement with %s has one plan", write)
		}
	}

	read := func() (n int) { // index entries
		if _, err := h.Config.API.Exec(ctx, `SELECT pg_stat_force_next_flush()`); err != nil {
			t.Fatal(err)
		}
		return h.Number(`SELECT sum(idx_tup_read) FROM pg_stat_user_indexes`)
	}
	h.Many(100, 30_000)
	if err := postgres.AnalyzeNew(t.Context(), h.Config.Pool); err != nil { // upkeep does it every two seconds
		t.Fatal(err)
	}
	before := read()
	leased(t, h)
	entries := read() - before
	t.Logf("two finishes read %d index entries", entries)
	if entries == 0 || entries > 2000 {
		t.Error("the plans read more than the rows that they look up")
	}
}
