package dispatchtest

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// layResting stores rows of the same tenants that rest in a state for long, such as paused schedules and cohorts of held workflows. With
// them each partial index has entries, unless all of its entries are work.
var layResting = []string{
	`INSERT INTO schedule (tenant_id, id, workflow, key, shard, status, spec, anchor_at, tzdata, created_at, updated_at, updated_by, paused_at, paused_until)
		OVERRIDING SYSTEM VALUE
		SELECT pg_temp.who(n), 12000000 + n, 'w' || n, 'p' || n, n % 64, CASE n % 5 WHEN 0 THEN 'quarantined' WHEN 1 THEN 'completed' ELSE 'paused' END,
			CASE WHEN n % 3 = 0 THEN '{"timezone":"UTC","calendars":[{"named":"c"}]}' ELSE '{"timezone":"UTC"}' END, now(), '', now(), now(), 't',
			CASE WHEN n % 5 > 1 THEN now() END, CASE WHEN n % 5 > 2 THEN now() + interval '1 day' END
		FROM generate_series(1, 8000) n`,
	`INSERT INTO schedule_state (tenant_id, schedule_id) SELECT tenant_id, id FROM schedule WHERE id > 12000000`,
	`INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, next_at, due_at, empty_at, calendars, revision, throttled_at, held, paced)
		SELECT n % 64, 12000000 + n, pg_temp.who(n), 'w' || n, decode(md5('rests' || n), 'hex'), 'skip', d.at,
			CASE WHEN n % 5 = 0 THEN NULL WHEN n % 5 = 1 THEN d.at ELSE 'infinity' END, CASE WHEN n % 5 = 0 THEN now() END, CASE WHEN n % 5 = 1 THEN ARRAY['c' || n] END, n % 5 % 2,
			CASE WHEN n % 5 IN (2, 4) THEN now() END, n % 5 = 3, n % 5 = 4
		FROM generate_series(1, 8000) n CROSS JOIN LATERAL (SELECT now() + n * interval '1 second' + interval '1 hour' AS at) d`,
	`INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, id, timing) OVERRIDING SYSTEM VALUE
		SELECT tenant_id, shard, hash, workflow, missed, id, '{}' FROM cohort WHERE id > 12000000`,
	`INSERT INTO rate_turn (tenant_id, workflow, due_at) SELECT tenant_id, workflow, now() + interval '1 day' FROM cohort WHERE paced`,
	`INSERT INTO rate_allowance (tenant_id, kind, name) SELECT pg_temp.who(n), 'endpoint', 'e' || n FROM generate_series(1, 2000) n`,
	`INSERT INTO api_key (tenant_id, id, name, hash, scopes, expires_at, created_by, previous_hash, previous_expires_at)
		SELECT pg_temp.who(n), n::text, 'k', decode(md5(n::text), 'hex'), '{}', now() + interval '90 days', 't', decode(md5('before' || n), 'hex'), now() FROM generate_series(1, 2000) n`,
	`INSERT INTO calendar (tenant_id, name, since, until, dates, created_at, updated_at, updated_by, ended_at)
		SELECT pg_temp.who(n), 'c' || n, 0, 1, '{}', now(), now(), 't', now() FROM generate_series(1, 2000) n`,
	`INSERT INTO revision (tenant_id, schedule_id, version, workflow, key, subject, spec, payload, anchor_at, deleted, ended_at, ended_by, status, changed_at, changed_by)
		SELECT pg_temp.who(n), 13000000 + n, 1, 'w' || n, 'd' || n, 's' || n, '{}', '{}', now(), n % 2 = 0, now(), 't', 'active', now(), 't' FROM generate_series(1, 3000) n`,
	`INSERT INTO audit (tenant_id, actor, action, target, request, subject) SELECT pg_temp.who(n), 't', 'put', 'x', '', 's' || n FROM generate_series(1, 3000) n`,
	`INSERT INTO platform_audit (actor, action, target, request) SELECT 't', 'put', 'x', '' FROM generate_series(1, 2000) n`,
	`INSERT INTO dead_letter (tenant_id, schedule_id, nominal_at, seq, workflow, key, subject, failed_at, fired_at, version, missed_count, shard, attempt, cause, dst)
		SELECT pg_temp.who(n), 10000000 + n, now(), 1, 'w' || n, 'k' || n, 's' || n, now(), now(), 1, 0, 0, 3, 0, 0 FROM generate_series(1, 3000) n`,
	`INSERT INTO operation (tenant_id, kind, started_by, params, look_at, subject) SELECT pg_temp.who(n), 'x', 't', '{}', now() + interval '1 day', 's' || n FROM generate_series(1, 2000) n`,
	`INSERT INTO operation_pause (tenant_id, schedule_id, operation_id, paused_at, recorded_at, was_paused, sync_before)
		SELECT tenant_id, id, 1, now(), now(), false, false FROM schedule WHERE id > 12000000 AND status = 'paused'`,
	`INSERT INTO endpoint_health (tenant_id, endpoint, process_id, at, breaker, queued, in_flight, minutes, last)
		SELECT pg_temp.who(n), 'e' || n, 900001, now(), 'closed', 0, 0, '[]', '[]' FROM generate_series(1, 2000) n`,
	`INSERT INTO unmet_expectation (tenant_id, workflow, event, since, told_at, data) SELECT tenant_id, name, 'workflow.late', now(), now(), '{}' FROM workflow WHERE expect_handed_s IS NOT NULL`,
	`INSERT INTO use_series (tenant_id, step, workflow, endpoint, at, bucket, reason, due, fired, succeeded, failed, cancelled, skipped, retried, missed)
		SELECT pg_temp.who(n), CASE WHEN n % 2 = 0 THEN 1 ELSE 60 END, 'w' || n, '', date_trunc('hour', now()), 0, 0, 1, 1, 1, 0, 0, 0, 0, 0 FROM generate_series(1, 3000) n`,
	`INSERT INTO workflow_poll (tenant_id, workflow, polled_at) SELECT pg_temp.who(n), 'w' || n, now() FROM generate_series(1, 2000) n`,
	`INSERT INTO lease_beat (lease_id, slot, until_at) SELECT id, 0, now() + interval '1 day' FROM lease WHERE id % 10 = 0`,
	`INSERT INTO failing (tenant_id, schedule_id, workflow, key) SELECT tenant_id, id, workflow, key FROM schedule WHERE id > 10000000 AND id % 40 = 0`,
	`INSERT INTO inactive (tenant_id, workflow, state, n) SELECT tenant_id, workflow, 'paused', 1 FROM schedule WHERE status = 'paused'`,
	`INSERT INTO label (tenant_id, name, value, workflow, key) SELECT tenant_id, 'plan', 'free', workflow, key FROM schedule WHERE id > 10000000 AND id % 40 = 0`,
}

// fewAtRest are the indexes that need no thousand entries of other tenants.
var fewAtRest = []string{
	// All of their entries are work that upkeep does at once.
	"buffered_orphan", "calendar_revision_unmarked", "chunk_swept", "chunk_unopened", "cohort_exhausted", "erasure_pending", "sync_over", "tenant_erased", "wake_pkey",
	"daily_use_delta_xact", "inactive_delta_xact", "notice_delta_xact", "tally_delta_xact",
	// Their tables have few rows: of processes, of tables, of the installation.
	"folded_pkey", "goose_db_version_pkey", "partition_attempt_pkey", "process_beat", "process_pkey", "setting_pkey", "tzdata_pkey",
	// A tenant has few syncs at a time. Only endpoints that are told of quotas are in this index.
	"sync_pkey", "sync_silent", "endpoint_told_quotas",
}

// wantEntries fails the test if an index has few entries. What a statement reads beside other tenants shows nothing if their rows are not
// in the indexes that it could use. An index of a partitioned table counts with those of its partitions.
func (h *Carillon) wantEntries() {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `
		SELECT c.relname
		FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid
		JOIN pg_class t ON t.oid = i.indrelid
		WHERE t.relnamespace = 'public'::regnamespace AND t.relname NOT LIKE 'river%' AND NOT t.relispartition
			AND 1000 > COALESCE((SELECT sum(p.reltuples) FROM pg_partition_tree(c.oid) n JOIN pg_class p ON p.oid = n.relid WHERE n.isleaf), c.reltuples)
		ORDER BY c.relname`) // CollectRows reports the error
	few, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.T.Fatal(err)
	}
	few = slices.DeleteFunc(few, func(name string) bool { return slices.Contains(fewAtRest, name) })
	if len(few) > 0 {
		h.T.Errorf("indexes with few entries of other tenants: %s", strings.Join(few, ", "))
	}
}
