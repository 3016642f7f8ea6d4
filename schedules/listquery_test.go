package schedules_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// crowd stores 20,000 schedules of ten workflows. Most of them are active. Three quarters are in one cohort, and each of the others has a
// cohort of its own.
func crowd(h *schedulestest.Fixture) {
	h.T.Helper()
	h.Put("seed", schedulestest.ByCron("0 12 * * *"))
	h.Exec(`UPDATE cohort SET ordered = true`)
	h.Exec(`UPDATE cohort_timing SET ordered = true`)
	h.Exec(`
		WITH made AS (
			INSERT INTO schedule (tenant_id, workflow, key, shard, status, spec, labels, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by, paused_at)
			SELECT s.tenant_id, 'w' || n % 10, 'k' || n, s.shard, t.status, s.spec, jsonb_build_object('plan', (n % 300)::text), s.anchor_at,
				CASE WHEN t.status = 'active' THEN s.cohort_id END, s.tzdata, now(), now(), 'ann', CASE WHEN t.status = 'paused' THEN now() END
			FROM schedule s, generate_series(1, 20000) n,
				LATERAL (SELECT CASE WHEN n % 500 > 2 THEN 'active' ELSE (ARRAY['paused', 'completed', 'quarantined'])[n % 500 + 1] END AS status) t
			RETURNING tenant_id, id, cohort_id, phase
		), state AS (
			INSERT INTO schedule_state (tenant_id, schedule_id) SELECT tenant_id, id FROM made
		)
		INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at)
		SELECT cohort_id, phase, id, tenant_id, now() FROM made WHERE cohort_id IS NOT NULL`)
	h.Exec(`
		INSERT INTO subject_profile (tenant_id, subject, timezone, created_at, updated_at, updated_by)
		SELECT $1, 'k' || n, 'Asia/Tokyo', now(), now(), 'ann'
		FROM generate_series(1, 20000) n`, h.Acme)
	h.Exec(`
		INSERT INTO cohort_timing (shard, tenant_id, workflow, hash, timing, missed)
		SELECT shard, tenant_id, workflow, decode(lpad(to_hex(n), 32, '0'), 'hex'), timing, missed
		FROM cohort_timing, generate_series(1, 5000) n`)
	h.Exec(`
		INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, next_at, due_at)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, c.next_at + row_number() OVER () * interval '1 minute', c.due_at
		FROM cohort c
		JOIN cohort_timing n ON n.id <> c.id AND n.shard = c.shard`)
	h.Exec(`
		WITH lone AS (
			SELECT id, row_number() OVER (ORDER BY id) * 4 AS n FROM cohort WHERE id <> (SELECT min(id) FROM cohort)
		), moved AS (
			UPDATE schedule s SET cohort_id = lone.id FROM lone WHERE s.key = 'k' || lone.n AND s.status = 'active' RETURNING s.id, s.cohort_id
		)
		UPDATE member m SET cohort_id = moved.cohort_id FROM moved WHERE m.schedule_id = moved.id`)
	h.SetFailures(1, `s.id % 200 = 0`)
	h.Exec(`ANALYZE`)
}

// plan returns how PostgreSQL runs a statement. If it runs it, the plan has the number of pages too.
func plan(h *schedulestest.Fixture, how, sql string, args ...any) string {
	h.T.Helper()
	tx, err := h.API.Begin(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	defer tx.Rollback(h.T.Context())
	if _, err := tx.Exec(h.T.Context(), `SET LOCAL random_page_cost = 1.1`); err != nil { // as on any disk without a head
		h.T.Fatal(err)
	}
	rows, err := tx.Query(h.T.Context(), how+" "+sql, args...)
	if err != nil {
		h.T.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.T.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// scansProfiles finds a condition on the subject that is checked on each profile of the tenant.
var scansProfiles = regexp.MustCompile(`Filter: .*\bsubject = .*COALESCE|Filter: .*\bsubject = .*CASE`)

func TestEveryFilterOfAListIsServedByAnIndex(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	crowd(h)
	type reading struct {
		name, index string
		sql         string
		args        []any
	}
	var all []reading
	for _, one := range []struct {
		index string
		f     schedules.Filter
	}{
		{"schedule_workflow_key", schedules.Filter{}},
		{"schedule_workflow_key", schedules.Filter{Workflow: "w1"}},
		{"schedule_workflow_key", schedules.Filter{Workflow: "w1", KeyPrefix: "k12"}},
		{"schedule_workflow_key", schedules.Filter{KeyPrefix: "k12"}},
		{"schedule_workflow_key", schedules.Filter{KeyPrefix: "k12", Status: policy.Paused}},
		{"schedule_workflow_key", schedules.Filter{Key: "k12"}},
		{"schedule_workflow_key", schedules.Filter{Key: "k12", Workflow: "w1"}},
		{"schedule_workflow_key", schedules.Filter{Subject: "k12"}},
		{"schedule_by_subject", schedules.Filter{Subject: "k12"}},
		{"schedule_by_subject", schedules.Filter{Subject: "k12", Workflow: "w1", Status: policy.Active}},
		{"schedule_workflow_key", schedules.Filter{KeyContains: "77"}},
		{"schedule_workflow_key", schedules.Filter{Timezone: "America/New_York", Workflow: "w1"}},
		{"schedule_workflow_key", schedules.Filter{Calendar: "off"}},
		{"failing_workflow_key", schedules.Filter{Failing: true}},
		{"failing_workflow_key", schedules.Filter{Failing: true, Workflow: "w1", Status: policy.Active}},
		{"schedule_workflow_key", schedules.Filter{Status: policy.Active}},
		{"schedule_by_status", schedules.Filter{Status: policy.Paused}},
		{"schedule_by_status", schedules.Filter{Status: policy.Completed}},
		{"schedule_by_status", schedules.Filter{Status: policy.Quarantined}},
		{"schedule_by_status", schedules.Filter{Status: policy.Quarantined, Workflow: "w1"}},
		{"label_pkey", schedules.Filter{Label: "plan:7"}},
		{"label_pkey", schedules.Filter{Label: "plan:7", Workflow: "w7"}},
		{"label_pkey", schedules.Filter{Label: "plan:7", Status: policy.Active}},
		{"cohort_next", schedules.Filter{DueBefore: time.Now().AddDate(1, 0, 0)}},
		{"cohort_timing_few", schedules.Filter{DueBefore: time.Now().AddDate(1, 0, 0)}},
		{"cohort_next", schedules.Filter{DueBefore: time.Now().AddDate(1, 0, 0), Workflow: "w"}},
		{"cohort_next", schedules.Filter{DueBefore: time.Now().AddDate(1, 0, 0), Status: policy.Active}},
	} {
		sql, args := schedules.ListQuery(h.Acme, one.f)
		all = append(all, reading{fmt.Sprintf("%+v", one.f), one.index, sql, args})
	}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i*10+1)
	}
	all = append(all,
		reading{"1,000 at once", "schedule_workflow_key", schedules.ManyQuery, []any{h.Acme, "w1", keys}},
		reading{"five by number", "schedule_pkey", schedules.ByIDQuery, []any{h.Acme, []int64{1, 2, 3, 4, 5}}},
		reading{"one", "schedule_workflow_key", schedules.OneQuery, []any{h.Acme, "w1", "k11"}})
	for _, r := range all {
		plan := plan(h, "EXPLAIN", r.sql, r.args...)
		for _, table := range []string{"schedule", "schedule_state", "member", "label", "cohort", "subject_profile"} {
			if strings.Contains(plan, "Seq Scan on "+table+" ") {
				t.Errorf("%s reads all of %s:\n%s", r.name, table, plan)
			}
		}
		if scansProfiles.MatchString(plan) {
			t.Errorf("%s reads all profiles of the tenant for each schedule:\n%s", r.name, plan)
		}
		if !strings.Contains(plan, "using "+r.index+" on") && !strings.Contains(plan, "Scan on "+r.index) {
			t.Errorf("%s is not served by %s:\n%s", r.name, r.index, plan)
		}
	}
	h.Exec(`UPDATE cohort SET ordered = false`)
	h.Exec(`UPDATE cohort_timing SET ordered = false`)
	h.Exec(`ANALYZE`)
	sql, args := schedules.ListQuery(h.Acme, schedules.Filter{DueBefore: time.Now().AddDate(1, 0, 0)})
	if plan := plan(h, "EXPLAIN", sql, args...); !strings.Contains(plan, "Incremental Sort") {
		t.Errorf("in due order the members of all timings of few are read first:\n%s", plan)
	}
}

// The first page of a list and a page far behind read about as many pages of the database.
func TestAPageCostsTheSameWhereverItIs(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	crowd(h)
	pages := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)
	for _, f := range []schedules.Filter{
		{}, {Workflow: "w1"}, {KeyPrefix: "k1"}, {Status: policy.Active}, {Label: "plan:7"}, {DueBefore: time.Now().AddDate(1, 0, 0)},
	} {
		read := func(cursor string) (n int) {
			sql, args, err := h.Schedules.PageQuery(h.Acme, f, cursor)
			if err != nil {
				t.Fatal(err)
			}
			plan(h, "EXPLAIN (ANALYZE, BUFFERS)", sql, args...) // once to fill caches and set hint bits
			for _, part := range pages.FindStringSubmatch(plan(h, "EXPLAIN (ANALYZE, BUFFERS)", sql, args...))[1:] {
				more, _ := strconv.Atoi(part) // "" is none
				n += more
			}
			return n
		}
		first, cursor := read(""), ""
		if first > 3000 { // some 15 for each schedule, and a few to find where they begin
			t.Errorf("%+v reads %d pages of the database for its first page", f, first)
		}
		for range 10 {
			_, next, err := h.Schedules.List(t.Context(), h.Acme, f, 1000, cursor)
			if err != nil {
				t.Fatal(err)
			}
			if next == nil {
				break
			}
			cursor = *next
		}
		deep := read(cursor)
		t.Logf("%+v: %d pages at first, %d behind", f, first, deep)
		if deep > 2*first+100 {
			t.Errorf("%+v reads %d pages of the database for its first page, and %d far behind", f, first, deep)
		}
	}
}

// A list whose index does not hold the status of the filter looks at a bounded number of schedules for each page. So its pages are short,
// and together they have all schedules.
func TestAPageLooksAtSoManySchedules(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	crowd(h)
	h.Exec(`UPDATE schedule SET labels = labels || '{"all": "1"}'`)
	h.Exec(`ANALYZE`)
	check := func(f schedules.Filter, atLeast int) {
		t.Helper()
		var got []string
		pages, cursor := 0, ""
		for {
			page, next, err := h.Schedules.List(h.T.Context(), h.Acme, f, 100, cursor)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			for _, s := range page {
				if s.Status != f.Status {
					t.Fatalf("%+v: %s/%s is %s", f, s.Workflow, s.Key, s.Status)
				}
				got = append(got, s.Workflow+"/"+s.Key)
			}
			if next == nil {
				break
			}
			cursor = *next
		}
		want := names(h, f)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: want -, got +:\n%s", f, diff)
		}
		if pages < atLeast {
			t.Errorf("%+v: %d schedules on %d pages, want at least %d", f, len(got), pages, atLeast)
		}
	}
	sparse := []schedules.Filter{
		{Label: "all:1", Status: policy.Paused},
		{Label: "all:1", Status: policy.Completed},
		{KeyPrefix: "k", Status: policy.Quarantined},
		{KeyPrefix: "k", Status: policy.Paused},
	}
	for _, f := range sparse {
		check(f, 4)
	}
	check(schedules.Filter{Label: "all:1", Status: policy.Paused, Workflow: "w0"}, 1)
	check(schedules.Filter{KeyPrefix: "k1", Status: policy.Paused, Workflow: "w0"}, 1)
	check(schedules.Filter{Label: "none:1", Status: policy.Paused}, 1)
	bounded := func(f schedules.Filter) {
		t.Helper()
		for _, read := range []func() (string, []any){
			func() (string, []any) { return schedules.ListQuery(h.Acme, f) },
			func() (string, []any) { return schedules.LastQuery(h.Acme, f) },
		} {
			sql, args := read()
			if f.KeyPrefix != "" && f.Workflow == "" && slices.Contains(args, any(101)) {
				continue // it is read through a known place only
			}
			plan := plan(h, "EXPLAIN (ANALYZE)", sql, args...)
			if n := mostRows(plan); n > 6_000 {
				t.Fatalf("%+v reads %d rows:\n%s", f, n, plan)
			}
		}
	}
	for _, f := range sparse {
		bounded(f)
	}
	h.Exec(`UPDATE schedule SET status = 'paused', paused_at = now(), cohort_id = NULL WHERE status = 'active' AND id % 900 > 0`)
	h.Exec(`ANALYZE`)
	check(schedules.Filter{Status: policy.Active}, 4)
	bounded(schedules.Filter{Status: policy.Active})
}

// A page of a workflow that finds its schedules at once reads no more of them, although it may look at more.
func TestAPageOfAWorkflowStopsWhenItIsFull(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	crowd(h)
	h.Exec(`UPDATE schedule SET labels = labels || '{"all": "1"}'`)
	h.Exec(`ANALYZE`)
	for _, f := range []schedules.Filter{
		{Workflow: "w1", Status: policy.Active},
		{Workflow: "w1", Status: policy.Active, KeyPrefix: "k"},
		{Workflow: "w1", Status: policy.Active, Label: "all:1"},
		{Workflow: "w1", KeyContains: "1"},
		{Workflow: "w1", Timezone: "UTC"},
	} {
		sql, args := schedules.ListQuery(h.Acme, f)
		plan := plan(h, "EXPLAIN (ANALYZE)", sql, args...)
		if n := mostRows(plan); n > 300 {
			t.Errorf("%+v reads %d of 2,000 schedules:\n%s", f, n, plan)
		}
	}
}

var actualRows = regexp.MustCompile(`actual [^)]*rows=(\d+)`)

// mostRows returns how many rows the largest node of a plan that ran has read.
func mostRows(plan string) (most int) {
	for _, part := range actualRows.FindAllStringSubmatch(plan, -1) {
		n, _ := strconv.Atoi(part[1])
		most = max(most, n)
	}
	return most
}

// names returns the schedules of a status with a label or a prefix, by their rows.
func names(h *schedulestest.Fixture, f schedules.Filter) (names []string) {
	h.T.Helper()
	return schedulestest.One[[]string](h, `
		SELECT array_agg(workflow || '/' || key ORDER BY workflow, key)
		FROM schedule
		WHERE status = $1 AND starts_with(key, $2) AND ($3 = '' OR workflow = $3) AND ($4 = '' OR labels @> jsonb_build_object(split_part($4, ':', 1), split_part($4, ':', 2)))`,
		f.Status, f.KeyPrefix, f.Workflow, f.Label)
}
