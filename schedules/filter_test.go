package schedules_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

func TestAListByLabelFollowsEveryChange(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	labelled := func(labels map[string]string) schedules.Params {
		p := spec(cron("0 12 * * *"))
		p.Labels = labels
		return p
	}
	for i := range 7 {
		h.put(fmt.Sprint(i), labelled(map[string]string{"plan": []string{"pro", "free"}[i%2], "at": "a:b"}))
	}
	h.put("none", labelled(nil))
	check := func(label string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), h.pages(t, schedules.Filter{Label: label}, 2)); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", label, diff)
		}
	}
	check("plan:pro", "w/0", "w/2", "w/4", "w/6")
	check("at:a:b", "w/0", "w/1", "w/2", "w/3", "w/4", "w/5", "w/6")
	check("plan:p")
	h.put("0", labelled(map[string]string{"plan": "free"}))
	h.put("2", labelled(nil))
	h.put("none", labelled(map[string]string{"plan": "pro"}))
	h.delete("4")
	h.pause("6", schedules.PauseParams{})
	check("plan:pro", "w/6", "w/none")
	check("plan:free", "w/0", "w/1", "w/3", "w/5")
	if got := h.pages(t, schedules.Filter{Workflow: "w", Label: "plan:pro", Status: policy.Paused}, 10); len(got) != 1 || got[0] != "w/6" {
		t.Errorf("got %v", got)
	}
}

// Half of the timings were made while the tenant had few schedules, and half since it has many: a list holds both, in one order.
func TestAListInDueOrder(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	start := time.Now().UTC().Add(24 * time.Hour).Truncate(time.Hour)
	var want []string
	for i := range 12 {
		at := start.Add(time.Duration(i/3) * time.Hour)
		p := spec(cron(fmt.Sprintf("0 %d %d %d *", at.Hour(), at.Day(), at.Month())))
		h.exec(`
			INSERT INTO tally (tenant_id, cohort_id, n) SELECT id, 0, $1 FROM tenant
			ON CONFLICT (tenant_id, cohort_id) DO UPDATE SET n = excluded.n`, i/3%2*1_000_000)
		h.put(fmt.Sprint(i), p)
		if i < 9 {
			want = append(want, fmt.Sprint("w/", i))
		}
	}
	// A tenant whose count was read as many has them laid over several shards, and a timing has a cohort in each.
	const timings = `SELECT count(DISTINCT hash) FROM cohort WHERE ordered = $1`
	if few, many := one[int](h, timings, false), one[int](h, timings, true); few != 2 || many != 2 {
		t.Errorf("%d timings are made as of few, and %d as of many", few, many)
	}
	f := schedules.Filter{DueBefore: start.Add(3 * time.Hour)}
	for _, limit := range []int{1, 2, 5, 100} {
		got := h.pages(t, f, limit)
		for i := range 3 { // those of one time come in an order of their own
			part := got[min(len(got), i*3):min(len(got), i*3+3)]
			for _, name := range want[i*3 : i*3+3] {
				if !strings.Contains(strings.Join(part, " ")+" ", name+" ") {
					t.Errorf("limit %d: got %v, want %v", limit, got, want)
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("limit %d: got %v, want %v", limit, got, want)
		}
	}
	h.pause("4", schedules.PauseParams{})
	if got := h.pages(t, f, 100); len(got) != 8 {
		t.Errorf("with one paused: got %v", got)
	}
	f.Workflow = "other"
	if got := h.pages(t, f, 100); len(got) != 0 {
		t.Errorf("of another workflow: got %v", got)
	}
}

// crowd stores 20,000 schedules of ten workflows, most of them active, three quarters of them in one cohort and the others alone in
// theirs.
func (h *home) crowd() {
	h.t.Helper()
	h.put("seed", spec(cron("0 12 * * *")))
	h.exec(`UPDATE cohort SET ordered = true`)
	h.exec(`UPDATE cohort_timing SET ordered = true`)
	h.exec(`
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
	h.exec(`
		INSERT INTO cohort_timing (shard, tenant_id, workflow, hash, timing, missed)
		SELECT shard, tenant_id, workflow, decode(lpad(to_hex(n), 32, '0'), 'hex'), timing, missed
		FROM cohort_timing, generate_series(1, 5000) n`)
	h.exec(`
		INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, next_at, due_at)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, c.next_at + row_number() OVER () * interval '1 minute', c.due_at
		FROM cohort c
		JOIN cohort_timing n ON n.id <> c.id AND n.shard = c.shard`)
	h.exec(`
		WITH lone AS (
			SELECT id, row_number() OVER (ORDER BY id) * 4 AS n FROM cohort WHERE id <> (SELECT min(id) FROM cohort)
		), moved AS (
			UPDATE schedule s SET cohort_id = lone.id FROM lone WHERE s.key = 'k' || lone.n AND s.status = 'active' RETURNING s.id, s.cohort_id
		)
		UPDATE member m SET cohort_id = moved.cohort_id FROM moved WHERE m.schedule_id = moved.id`)
	h.exec(`ANALYZE`)
}

// plan is how PostgreSQL runs a statement, with what it costs in pages where it is run.
func (h *home) plan(how, sql string, args ...any) string {
	h.t.Helper()
	tx, err := h.api.Begin(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	defer tx.Rollback(h.t.Context())
	if _, err := tx.Exec(h.t.Context(), `SET LOCAL random_page_cost = 1.1`); err != nil { // as on any disk without a head
		h.t.Fatal(err)
	}
	rows, err := tx.Query(h.t.Context(), how+" "+sql, args...)
	if err != nil {
		h.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestEveryFilterOfAListIsServedByAnIndex(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.crowd()
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
		sql, args := schedules.ListQuery(h.acme, one.f)
		all = append(all, reading{fmt.Sprintf("%+v", one.f), one.index, sql, args})
	}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i*10+1)
	}
	all = append(all,
		reading{"1,000 at once", "schedule_workflow_key", schedules.ManyQuery, []any{h.acme, "w1", keys}},
		reading{"one", "schedule_workflow_key", schedules.OneQuery, []any{h.acme, "w1", "k11"}})
	for _, r := range all {
		plan := h.plan("EXPLAIN", r.sql, r.args...)
		for _, table := range []string{"schedule", "schedule_state", "member", "label", "cohort"} {
			if strings.Contains(plan, "Seq Scan on "+table+" ") {
				t.Errorf("%s reads all of %s:\n%s", r.name, table, plan)
			}
		}
		if !strings.Contains(plan, "using "+r.index+" on") && !strings.Contains(plan, "Scan on "+r.index) {
			t.Errorf("%s is not served by %s:\n%s", r.name, r.index, plan)
		}
	}
	h.exec(`UPDATE cohort SET ordered = false`)
	h.exec(`UPDATE cohort_timing SET ordered = false`)
	h.exec(`ANALYZE`)
	sql, args := schedules.ListQuery(h.acme, schedules.Filter{DueBefore: time.Now().AddDate(1, 0, 0)})
	if plan := h.plan("EXPLAIN", sql, args...); !strings.Contains(plan, "Incremental Sort") {
		t.Errorf("in due order the members of all timings of few are read first:\n%s", plan)
	}
}

// A page far behind costs what the first one does: both read about as many pages of the database.
func TestAPageCostsTheSameWhereverItIs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.crowd()
	pages := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)
	for _, f := range []schedules.Filter{
		{}, {Workflow: "w1"}, {KeyPrefix: "k1"}, {Status: policy.Active}, {Label: "plan:7"}, {DueBefore: time.Now().AddDate(1, 0, 0)},
	} {
		read := func(cursor string) (n int) {
			sql, args, err := h.schedules.PageQuery(h.acme, f, cursor)
			if err != nil {
				t.Fatal(err)
			}
			h.plan("EXPLAIN (ANALYZE, BUFFERS)", sql, args...) // once to fill caches and set hint bits
			for _, part := range pages.FindStringSubmatch(h.plan("EXPLAIN (ANALYZE, BUFFERS)", sql, args...))[1:] {
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
			_, next, err := h.schedules.List(t.Context(), h.acme, f, 1000, cursor)
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
