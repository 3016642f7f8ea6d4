package upkeep_test

import (
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/operations"
)

// Index entries of rows that were deleted by age cannot be removed while an old snapshot is open. The tasks that delete such rows do not
// read them again.
func TestTasksThatDeleteOldRowsDoNotReadEarlierOnesUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r := &dispatchtest.Recorder{Ran: map[string][]any{}}
	h.Traced(r)
	h.Config.Operations = operations.New(operations.Config{Pool: h.Config.API, Engine: h.Config.Pool, IDs: h.Config.IDs, Cursors: h.Config.Cursors, Queue: h.Jobs.QueueOperation})
	d := h.Process()
	h.OldSnapshot()
	round := 0
	words := []string{
		"DELETE FROM chunk\n", "DELETE FROM idempotency\n", "DELETE FROM operation\n", "DELETE FROM operation_pause\n", "DELETE FROM endpoint_health\n", "step = 1 AND at",
		"AND c.empty_at >= $3", "AND e.empty_at >= $7",
	}
	upkeep := func() {
		t.Helper()
		if err := d.RunUpkeep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lay := func() { // rows that have just become too old
		t.Helper()
		round++
		for _, sql := range []string{
			`INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at, opened_at, done_at)
				SELECT 1, $1, 0, 'small', now(), 1, 1, 1, '\x00', '{w}', now(), now(), clock_timestamp() - interval '1 hour' FROM generate_series(1, 200) n WHERE $2::int > 0`,
			`INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer, created_at)
				SELECT $1, 'r', $2::int || ' ' || n, '', 1, '', clock_timestamp() - interval '1 day' FROM generate_series(1, 200) n`,
			`INSERT INTO operation (tenant_id, kind, state, started_by, params, ended_at)
				SELECT $1, 'x', 'succeeded', 't', '{}', clock_timestamp() - interval '7 days' FROM generate_series(1, 200) n WHERE $2::int > 0`,
			`INSERT INTO operation_pause (tenant_id, schedule_id, operation_id, paused_at, recorded_at, was_paused, sync_before)
				SELECT $1, 1000 * $2::int + n, 1, now(), clock_timestamp() - interval '7 days', false, false FROM generate_series(1, 200) n`,
			`INSERT INTO endpoint_health (tenant_id, endpoint, process_id, at, breaker, queued, in_flight, minutes, last)
				SELECT $1, 'e', 1000 * $2::int + n, clock_timestamp() - interval '1 hour', 'closed', 0, 0, '[]', '[]' FROM generate_series(1, 200) n`,
			`INSERT INTO use_series (tenant_id, step, workflow, endpoint, at, bucket, reason, due, fired, succeeded, failed, cancelled, skipped, retried, missed)
				SELECT $1, 1, ($2::int)::text, n::text, clock_timestamp() - interval '7 days', -1, 0, 1, 1, 1, 0, 0, 0, 0, 0 FROM generate_series(1, 200) n`,
			`INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, empty_at)
				SELECT 7, 1000000 + 1000 * $2::int + n, $1, 'w', decode(md5($2::int || ' ' || n), 'hex'), 'skip', clock_timestamp() - interval '1 hour' FROM generate_series(1, 200) n`,
		} {
			h.Exec(sql, h.Tenant, round)
		}
	}
	rounds := func(n int) {
		t.Helper()
		for range n {
			lay()
			upkeep()
		}
		for _, table := range []string{"chunk", "idempotency", "operation", "operation_pause", "endpoint_health", "use_series", "cohort WHERE empty_at IS NOT NULL"} {
			if left := h.Number(`SELECT count(*) FROM ` + table); left != 0 {
				t.Fatalf("%d rows of %s are left", left, table)
			}
		}
		lay() // for the statements that are measured
	}
	rounds(2)
	upkeep()
	before := h.Entries(r, words...)
	rounds(20)
	upkeep()
	dispatchtest.Grown(t, before, h.Entries(r, words...))
	for i, word := range words {
		r.FromLowEnd(word, []int{0, 0, 0, 0, 0, 0, 2, 6}[i])
	}
	for sql, n := range h.Entries(r, words...) {
		if n < 1000 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// A process begins at the lowest entry, so it deletes a row that came below the edge of another process.
func TestAProcessDeletesOldRowsThatCameLate(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	first, second := h.Process(), h.Process()
	if err := first.RunUpkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Exec(`INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer, created_at) VALUES ($1, 'r', 'late', '', 1, '', now() - interval '2 days')`, h.Tenant)
	if err := second.RunUpkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM idempotency`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
