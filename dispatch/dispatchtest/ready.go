package dispatchtest

import (
	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
)

// ReadyHerd makes n schedules of a workflow, "herd 1" to "herd n-1" and "first", that are due at once. Their
// ticks wait for workers.
func (h *Carillon) ReadyHerd(workflow string, n int) {
	h.T.Helper()
	h.SweptHerd(workflow, n)
	for _, id := range h.Chunks() {
		if err := h.Dispatch.Open(h.T.Context(), id); err != nil {
			h.T.Fatal(err)
		}
	}
	if waiting := h.Number(`SELECT sum(ticks) FROM ready`); waiting != n {
		h.T.Fatalf("%d ticks wait, want %d", waiting, n)
	}
}

// SweptHerd makes n schedules of a workflow that are due at once, and sweeps them.
func (h *Carillon) SweptHerd(workflow string, n int) {
	h.T.Helper()
	if err := h.Dispatch.Register(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	h.Put(workflow, "first", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}})
	h.Herd(workflow, "first", n-1)
	h.Exec(`UPDATE member SET from_at = from_at - interval '1 minute'`)
	h.Exec(`UPDATE cohort SET next_at = date_trunc('second', clock_timestamp()), due_at = clock_timestamp()`)
	if _, err := h.Dispatch.SweepOnce(h.T.Context(), int16(h.Number(`SELECT shard FROM cohort`))); err != nil {
		h.T.Fatal(err)
	}
}

// Many stores rows of the tenant, with the numbers above first to last, in each table that leases and finishes use. None of them is due.
func (h *Carillon) Many(first, last int) {
	h.T.Helper()
	tx, err := h.Pool.Begin(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback(h.T.Context()) }()
	lay := func(sql string, args ...any) {
		if _, err := tx.Exec(h.T.Context(), sql, args...); err != nil {
			h.T.Fatalf("%v:\n%s", err, sql)
		}
	}
	lay(`SET LOCAL session_replication_role = replica`) // without foreign keys
	for _, sql := range []string{
		`INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, shard, attempt, state, reason, cause, dst)
			SELECT $1, 900000 + n % 300, now() + n * interval '1 ms', 0, 1, 0, now(), 0, 1, 1, 0, 0, 0 FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO schedule_state (tenant_id, schedule_id, last_at) SELECT $1, 900000 + n, now() FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO schedule (tenant_id, id, workflow, key, shard, status, spec, anchor_at, tzdata, created_at, updated_at, updated_by) OVERRIDING SYSTEM VALUE
			SELECT $1, 900000 + n, 'herd', 'other ' || n, 0, 'active', '{}', now(), '', now(), now(), '' FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at)
			SELECT $1, 900000 + n, now(), 0, 1, 0, 'retry', now() + interval '1 day' FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq) SELECT $1, 900000 + n, now(), 0 FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO attempt (tenant_id, schedule_id, nominal_at, seq, attempt, ended_at, outcome)
			SELECT $1, 900000 + n, now(), 0, 1, now(), 'failed' FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks) SELECT $1, 'w', now(), now() - interval '1 hour', 0, '' FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO lease_beat (lease_id, slot, until_at) SELECT $1 + 900000 + n, 0, now() FROM generate_series($2 + 1, $3::int) n`,
		`INSERT INTO slot (tenant_id, schedule_id, nominal_at, seq, attempt, workflow) SELECT $1, 900000 + n, now(), 0, 1, 'other' FROM generate_series($2 + 1, $3::int) n`,
	} {
		lay(sql, h.Tenant, first, last)
	}
	if err := tx.Commit(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
}
