package dispatchtest

import (
	"slices"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
)

// layOthers stores about a million rows of a thousand tenants; a few of the tenants have most of the rows. None of these rows is due for
// any work. Cohorts 1 to 20,000 have fixed_delay and a tick that runs.
var layOthers = []string{
	`CREATE FUNCTION pg_temp.who(n bigint) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 1001 + floor(1000 * power((n * 7919 % 10007) / 10007.0, 3))::int $$`,
	`INSERT INTO tenant (id, name, quotas) OVERRIDING SYSTEM VALUE SELECT n, 'other-' || n, '{}' FROM generate_series(1001, 2000) n`,
	`INSERT INTO process (id, name, place, pid, sweeps, dispatches, beat_at) OVERRIDING SYSTEM VALUE VALUES (900001, 'other', '', 1, false, false, now() + interval '1 day')`,
	`INSERT INTO endpoint (tenant_id, name, url, secrets, events)
		SELECT pg_temp.who(n), 'e' || n, 'https://example.com', '{x}', CASE WHEN n <= 200 THEN '{quota.soft}' ELSE '{}' END::text[] FROM generate_series(1, 20000) n`,
	`INSERT INTO workflow (tenant_id, name, max_running, rate, held_at, expect_handed_s, endpoint, defaults)
		SELECT pg_temp.who(n), 'w' || n, CASE WHEN n <= 20 THEN 1 WHEN n % 40 = 1 THEN 100 END, CASE WHEN n % 40 = 2 THEN 100 END, CASE WHEN n % 40 = 3 THEN now() END,
			CASE WHEN n % 40 = 4 THEN 3600 END, CASE WHEN n % 40 = 5 THEN 'e' || n END,
			CASE WHEN n % 40 = 6 THEN '{"delivery":{"retention":{"succeeded":"30d"}}}' ELSE '{}' END::jsonb
		FROM generate_series(1, 50000) n`,
	`INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, next_at, due_at, delay, ordered)
		SELECT n % 64, 10000000 + n, pg_temp.who(n), 'w' || n, decode(md5(n::text), 'hex'), 'skip',
			CASE WHEN n > 20000 THEN now() + n * interval '1 second' + interval '1 hour' END, CASE WHEN n > 20000 THEN now() + n * interval '1 second' + interval '1 hour' END, n <= 20000, n % 2 = 0
		FROM generate_series(1, 50000) n`,
	`INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, id, timing, ordered) OVERRIDING SYSTEM VALUE
		SELECT tenant_id, shard, hash, workflow, missed, id, '{}', ordered FROM cohort WHERE id > 10000000`,
	`INSERT INTO tally (tenant_id, cohort_id, shard, n, workflow) SELECT tenant_id, id, shard, 1, workflow FROM cohort WHERE id > 10000000`,
	`INSERT INTO schedule (tenant_id, id, workflow, key, shard, status, spec, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by, max_attempts,
			subject, keep_succeeded_s, moved_until)
		OVERRIDING SYSTEM VALUE
		SELECT pg_temp.who(c), 10000000 + n, 'w' || c, 'k' || n, c % 64, 'active', CASE WHEN n % 20 = 0 THEN '{"timezone":"@subject"}' ELSE '{"timezone":"UTC"}' END, now(),
			10000000 + c, '', now(), now(), 't', 3,
			CASE WHEN n % 8 = 0 THEN 's' || n END, CASE WHEN n % 40 = 0 THEN 864000 END, CASE WHEN n % 16 = 0 THEN now() + interval '1 day' + n % 997 * interval '1 minute' END
		FROM (SELECT n, CASE WHEN n <= 50000 THEN n ELSE 20001 + n % 30000 END AS c FROM generate_series(1, 80000) n) s`,
	`INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at, until_at)
		SELECT cohort_id, 0, id, tenant_id, now() - interval '1 day', CASE WHEN id % 8 = 0 THEN now() + interval '1 day' + id % 997 * interval '1 minute' END FROM schedule WHERE id > 10000000`,
	`INSERT INTO schedule_state (tenant_id, schedule_id, last_at, delay_at)
		SELECT tenant_id, id, d.at, CASE WHEN id <= 10020000 THEN d.at END
		FROM schedule CROSS JOIN LATERAL (SELECT date_trunc('day', now()) - interval '1 day' + id % 160000 * interval '1 second' AS at) d WHERE id > 10000000`,
	`INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
		SELECT tenant_id, schedule_id, last_at, 0, 1, 0, last_at, CASE WHEN delay_at IS NULL THEN last_at END, 0, 1, CASE WHEN delay_at IS NULL THEN 2 ELSE 1 END, 0, 0, 0
		FROM schedule_state WHERE schedule_id > 10000000`,
	`INSERT INTO slot (tenant_id, schedule_id, nominal_at, seq, attempt, workflow)
		SELECT tenant_id, schedule_id, nominal_at, 0, 1, 'w' || schedule_id - 10000000 FROM tick WHERE state = 1`,
	`INSERT INTO queued (tenant_id, workflow, priority, schedule_id, nominal_at, seq, attempt, shard)
		SELECT pg_temp.who(n % 20 + 1), 'w' || n % 20 + 1, 0, 10000000 + n, now(), 0, 1, 0 FROM generate_series(1, 20000) n`,
	`INSERT INTO revision (tenant_id, schedule_id, version, workflow, key, spec, anchor_at, ended_at, ended_by, status, changed_at, changed_by)
		SELECT tenant_id, id, 0, workflow, key, spec, now(), now(), 't', 'active', now(), 't' FROM schedule WHERE id > 10000000 AND id % 3 = 0`,
	`INSERT INTO attempt (tenant_id, schedule_id, nominal_at, seq, attempt, ended_at, outcome)
		SELECT tenant_id, schedule_id, nominal_at, seq, 0, now(), 'failed' FROM tick WHERE schedule_id > 10000000 AND schedule_id % 4 = 0`,
	`INSERT INTO tick_time (tenant_id, nominal_at, workflow, ticks, items) SELECT pg_temp.who(n), now(), 'w' || n, 1, '' FROM generate_series(1, 20000) n`,
	`INSERT INTO dead_letter (tenant_id, schedule_id, nominal_at, seq, workflow, key, failed_at, fired_at, version, missed_count, shard, attempt, cause, dst)
		SELECT pg_temp.who(n), 10000000 + n, now(), 0, 'w' || n, 'k' || n, now(), now(), 1, 0, 0, 3, 0, 0 FROM generate_series(1, 20000) n`,
	`INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at, opened_at, done_at, owner)
		SELECT n % 64, pg_temp.who(n), 0, 'small', now(), n, n, 1, '{w}', '\x00', now() - interval '10 minutes', now() - interval '10 minutes',
			CASE WHEN n > 20000 THEN now() - interval '9 minutes' END, 900001
		FROM generate_series(1, 60000) n`,
	`INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at)
		SELECT pg_temp.who(n), 10000000 + n, now(), 1, 1, n % 64, 'retry', now() + interval '1 day' FROM generate_series(1, 40000) n`,
	`UPDATE endpoint SET state = 'held' WHERE name IN (SELECT 'e' || n FROM generate_series(10001, 10200) n)`,
	`INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at, waits_for)
		SELECT pg_temp.who(e), 10000000 + n, now(), 2, 1, n % 64, 'endpoint', now() + interval '1 day', 'e' || e
		FROM (SELECT n, 10001 + n % 200 AS e FROM generate_series(1, 40000) n) s`,
	`INSERT INTO fair_turn (shard, tenant_id, due_at) SELECT n % 64, 1001 + n / 64, now() + interval '1 day' FROM generate_series(0, 19999) n`,
	`INSERT INTO ready (tenant_id, workflow, queue, priority, ticks, items) SELECT pg_temp.who(n), 'w' || n, 'default', 0, 1, '\x00' FROM generate_series(1, 30000) n`,
	`INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks) SELECT pg_temp.who(n), 'w', now(), now() + interval '1 day', 1, '\x00' FROM generate_series(1, 30000) n`,
	`INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq) SELECT tenant_id, id, now(), 2 FROM schedule WHERE id > 10000000 AND id % 2 = 0`,
	`INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer) SELECT pg_temp.who(n), '/v1', n::text, '', 200, '' FROM generate_series(1, 30000) n`,
	`INSERT INTO operation (tenant_id, kind, state, started_by, params, ended_at) SELECT pg_temp.who(n), 'x', 'succeeded', 't', '{}', now() FROM generate_series(1, 20000) n`,
	`INSERT INTO notice (tenant_id, event, cause, n, first_at, last_at, next_at) SELECT pg_temp.who(n), 'tick.failed', n::text, 1, now(), now(), now() + interval '1 hour' FROM generate_series(1, 20000) n`,
	`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at)
		SELECT pg_temp.who(n), 'e' || n, n::text, 'tick.failed', '', 1, now(), now(), now() + interval '1 hour' FROM generate_series(1, 20000) n`,
	`INSERT INTO bucket (tenant_id, quota, full_at) SELECT 1001 + n / 10, n::text, now() FROM generate_series(0, 9999) n`,
	`INSERT INTO audit (tenant_id, actor, action, target, request) SELECT pg_temp.who(n), 't', 'put', 'x', '' FROM generate_series(1, 20000) n`,
	`INSERT INTO daily_use (tenant_id, workflow, day, ticks) SELECT pg_temp.who(n), 'w' || n, current_date, 1 FROM generate_series(1, 20000) n`,
	`INSERT INTO subject_profile (tenant_id, subject, timezone, created_at, updated_at, updated_by) SELECT pg_temp.who(n), 'k' || n, 'UTC', now(), now(), 't' FROM generate_series(1, 30000) n`,
	`INSERT INTO erasure (tenant_id, subject_hash, erased_by, began_at, erased_at, schedule_ids) SELECT pg_temp.who(n), '\x00', 't', now(), now(), '{}' FROM generate_series(1, 5000) n`,
	`INSERT INTO calendar (tenant_id, name, since, dates, created_at, updated_at, updated_by) SELECT pg_temp.who(n), 'c' || n, 1, '{}', now(), now(), 't' FROM generate_series(1, 5000) n`,
	`INSERT INTO calendar_revision (tenant_id, revision, marked) SELECT n, 1, 1 FROM generate_series(1001, 2000) n`,
	`INSERT INTO push_load (process_id, tenant_id, requests, busiest) SELECT 900001, n, 1, 1 FROM generate_series(1001, 2000) n`,
	`INSERT INTO allowance (tenant_id, spent_to) SELECT n, now() FROM generate_series(1001, 2000) n`,
	`INSERT INTO sync (tenant_id, id) OVERRIDING SYSTEM VALUE SELECT n, n FROM generate_series(1001, 1200) n`,
	`INSERT INTO sync_line (tenant_id, sync_id, line, workflow, key, body) SELECT 1001 + n % 200, 1001 + n % 200, n, 'w', 'k', '{}' FROM generate_series(1, 20000) n`,
}

// ownTicks inserts ended ticks of today for tenant $1. They come after ANALYZE, so the planner has no statistics of this tenant.
const ownTicks = `
	INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
	SELECT $1, 900000 + n % 300, date_trunc('day', now()) + n * interval '1 second', 0, 1, 0, now(), now(), 0, 1, 2, 0, 0, 0
	FROM generate_series(1, 5000) n`

// LaidWork is what upkeep finds to do for tenant $1.
var LaidWork = []string{
	`UPDATE cohort SET next_at = NULL, due_at = NULL WHERE tenant_id = $1 AND workflow = 'herd'`,
	`INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq, orphan) SELECT $1, 900000 + n, now(), 2, true FROM generate_series(1, 300) n`,
	`INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, empty_at)
		SELECT 7, 20000000 + n, $1, 'w', decode(md5(n::text), 'hex'), 'skip', now() - interval '2 hours' FROM generate_series(1, 300) n`,
	`INSERT INTO operation (tenant_id, kind, state, started_by, params, ended_at) SELECT $1, 'x', 'succeeded', 't', '{}', now() - interval '30 days' FROM generate_series(1, 300) n`,
	`INSERT INTO sync (tenant_id, id, over) OVERRIDING SYSTEM VALUE VALUES ($1, 1, true)`,
	`INSERT INTO sync_line (tenant_id, sync_id, line, workflow, key, body) SELECT $1, 1, n, 'w', 'k', '{}' FROM generate_series(1, 300) n`,
	`INSERT INTO slot (tenant_id, schedule_id, nominal_at, seq, attempt, workflow) SELECT $1, 900000 + n, now(), 0, 1, 'w' FROM generate_series(1, 300) n`,
	`INSERT INTO process (id, name, place, pid, sweeps, dispatches, beat_at) OVERRIDING SYSTEM VALUE
		SELECT 900002, 'dead', '', 1, false, false, now() - interval '10 seconds' WHERE $1 > 0`,
	// A schedule of the herd keeps its ended ticks for longer than these are old.
	`WITH keeps AS (UPDATE schedule SET keep_succeeded_s = 864000 WHERE tenant_id = $1 AND workflow = 'herd' AND key = 'herd 1' RETURNING id)
		INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
		SELECT $1, keeps.id, date_trunc('day', now()) + n * interval '1 second', 0, 1, 0, now(), now(), 0, 1, 2, 0, 0, 0 FROM keeps, generate_series(1, 2000) n`,
	// A chunk of the dead process, and an unopened one whose time lies ahead. Each holds one tick of schedule 1.
	`INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at, opened_at, owner)
		SELECT 7, $1, 0, 'small', nominal_at, 1, 1, 1, '\x010100000101', '{w}', now() - interval '10 seconds', opened_at, owner
		FROM (VALUES (now() - interval '10 seconds', now() - interval '10 seconds', 900002), (now() + interval '10 days', NULL, NULL)) c (nominal_at, opened_at, owner)`,
}

// Others stores these rows without triggers and checks of foreign keys, and updates the statistics of the planner.
func (h *Carillon) Others() {
	h.T.Helper()
	ctx := h.T.Context()
	began := time.Now()
	h.MakeDays(began)
	laying, err := postgres.Open(ctx, h.Pool.Config().ConnString(), postgres.Options{MaxConns: 1, StatementTimeout: 5 * time.Minute})
	if err != nil {
		h.T.Fatal(err)
	}
	defer laying.Close()
	lay := func(sql string, args ...any) {
		if _, err := laying.Exec(ctx, sql, args...); err != nil {
			h.T.Fatalf("%v:\n%s", err, sql)
		}
	}
	lay(`SET session_replication_role = replica`)
	for _, sql := range slices.Concat(layOthers, layResting) {
		lay(sql)
	}
	lay(`VACUUM ANALYZE`)
	h.wantEntries()
	lay(ownTicks, h.Tenant)
	var rows int
	if err := laying.QueryRow(ctx, `SELECT sum(n_live_tup)::bigint FROM pg_stat_user_tables`).Scan(&rows); err != nil {
		h.T.Fatal(err)
	}
	h.T.Logf("%d rows were laid in %s", rows, time.Since(began).Round(time.Second))
}
