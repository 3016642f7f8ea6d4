package upkeep_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// keepHouse runs the periodic tasks of upkeep once.
func keepHouse(h *dispatchtest.Carillon) {
	h.T.Helper()
	if err := h.Dispatch.RunUpkeep(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
}

// texts returns a column of texts, sorted.
func texts(h *dispatchtest.Carillon, sql string, args ...any) []string {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), sql, args...) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.T.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func wantTexts(h *dispatchtest.Carillon, what string, want []string, sql string) {
	h.T.Helper()
	if got := texts(h, sql); !slices.Equal(got, want) {
		h.T.Errorf("%s: %q are left, want %q", what, got, want)
	}
}

// Upkeep deletes what is old enough, and nothing that is younger or still in use.
func TestUpkeepClearsNothingTooEarly(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at, opened_at, done_at)
		SELECT 0, $1, 0, 'small', at, 1, 1, 1, ARRAY[name], '', at, opened, done
		FROM (SELECT now() - interval '3 hours' AS at, now() + interval '1 hour' AS later) c
		CROSS JOIN LATERAL (VALUES ('old', at, now() - interval '61 minutes'), ('young', at, now() - interval '50 minutes'), ('open', later, NULL)) v (name, opened, done)`, h.Tenant)
	h.Exec(`
		INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer, created_at)
		SELECT $1, '/v1', name, '', 200, '', now() - age
		FROM (VALUES ('old', interval '24 hours 1 minute'), ('young', interval '23 hours')) v (name, age)`, h.Tenant)
	h.Exec(`
		INSERT INTO process (id, name, place, pid, sweeps, dispatches, beat_at) OVERRIDING SYSTEM VALUE
		VALUES (901, 'gone', '', 1, false, false, now() - interval '2 minutes'), (902, 'here', '', 1, false, false, now() + interval '1 hour')`)
	h.Exec(`INSERT INTO push_load (process_id, tenant_id, requests, busiest) SELECT id, $1, 1, 1 FROM unnest(ARRAY[900, 901, 902, 903]) AS n (id)`, h.Tenant)
	keepHouse(h)
	wantTexts(h, "chunks", []string{"open", "young"}, `SELECT workflows[1] FROM chunk`)
	wantTexts(h, "answers", []string{"young"}, `SELECT key FROM idempotency`)
	wantTexts(h, "processes", []string{"here"}, `SELECT name FROM process`)
	wantTexts(h, "requests in flight", []string{"902"}, `SELECT process_id::text FROM push_load`)
}

// An empty cohort is deleted with its timing and its count. It stays while it has a member or is empty for less than an hour. A chunk of
// another tenant or in another shard does not keep it.
func TestUpkeepClearsEmptyCohortsWithTheirTimings(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other := h.Quota("other", 1000)
	for i, name := range []string{"old", "young", "joined"} {
		h.Put(name, "k", dispatchtest.Daily(i))
	}
	h.Exec(`UPDATE member SET cohort_id = -1 WHERE cohort_id IN (SELECT id FROM cohort WHERE workflow <> 'joined')`)
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL, empty_at = now() - CASE WHEN workflow = 'young' THEN interval '50 minutes' ELSE interval '61 minutes' END`)
	h.Exec(`INSERT INTO tally (tenant_id, cohort_id, shard, n, workflow) SELECT tenant_id, id, shard, 0, workflow FROM cohort ON CONFLICT DO NOTHING`)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at)
		SELECT CASE WHEN own THEN (shard + 1) % 64 ELSE shard END, CASE WHEN own THEN tenant_id ELSE $1 END, 0, 'small', now(), 1, 1, 1, '{}', '', now()
		FROM cohort CROSS JOIN (VALUES (true), (false)) v (own)
		WHERE workflow = 'old'`, other)
	keepHouse(h)
	left := []string{"joined", "young"}
	wantTexts(h, "cohorts", left, `SELECT workflow FROM cohort`)
	wantTexts(h, "timings", left, `SELECT workflow FROM cohort_timing`)
	wantTexts(h, "counts", left, `SELECT workflow FROM tally WHERE cohort_id <> 0`)
}

// The walk through the buckets comes to all of them, and begins again after the last.
func TestUpkeepClearsTheBucketsOfTenantsThatAreGone(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	lay := func() {
		h.Exec(`INSERT INTO bucket (tenant_id, quota, full_at) SELECT 0, 'platform', now() UNION ALL SELECT $1, 'own', now() ON CONFLICT DO NOTHING`, h.Tenant)
		h.Exec(`INSERT INTO bucket (tenant_id, quota, full_at) SELECT 5000 + n % 7, 'q' || n, now() FROM generate_series(1, 1300) AS n`)
	}
	for range 2 {
		lay()
		for range 3 { // pages
			keepHouse(h)
		}
		wantTexts(h, "buckets", []string{"own", "platform"}, `SELECT quota FROM bucket`)
	}
}

func TestOldSeriesAreCleared(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO use_series (tenant_id, step, workflow, endpoint, at, bucket, reason, due, fired, succeeded, failed, cancelled, skipped, retried, missed)
		SELECT $1, step, name, '', now() - age, -1, 0, 1, 0, 0, 0, 0, 0, 0, 0
		FROM (VALUES (1, 'old minute', interval '7 days 1 hour'), (1, 'minute', interval '6 days'),
			(60, 'old hour', interval '91 days'), (60, 'hour', interval '89 days')) v (step, name, age)`, h.Tenant)
	keepHouse(h)
	wantTexts(h, "series", []string{"hour", "minute"}, `SELECT workflow FROM use_series`)
}
