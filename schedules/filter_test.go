package schedules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules"
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
	if got := h.pages(t, schedules.Filter{Workflow: "w", Label: "plan:pro", Status: schedules.Paused}, 10); len(got) != 1 || got[0] != "w/6" {
		t.Errorf("got %v", got)
	}
}

func TestAListInDueOrder(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	start := time.Now().UTC().Add(24 * time.Hour).Truncate(time.Hour)
	var want []string
	for i := range 12 {
		at := start.Add(time.Duration(i/3) * time.Hour)
		p := spec(cron(fmt.Sprintf("0 %d %d %d *", at.Hour(), at.Day(), at.Month())))
		h.put(fmt.Sprint(i), p)
		if i < 9 {
			want = append(want, fmt.Sprint("w/", i))
		}
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

func TestEveryFilterOfAListIsServedByAnIndex(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("seed", spec(cron("0 12 * * *")))
	h.exec(`
		WITH made AS (
			INSERT INTO schedule (tenant_id, workflow, key, shard, status, spec, labels, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by)
			SELECT s.tenant_id, 'w' || n % 10, 'k' || n, s.shard, s.status, s.spec, jsonb_build_object('plan', n % 300), s.anchor_at, s.cohort_id, s.tzdata, now(), now(), 'ann'
			FROM schedule s, generate_series(1, 20000) n
			RETURNING tenant_id, id, cohort_id, spread
		), state AS (
			INSERT INTO schedule_state (tenant_id, schedule_id) SELECT tenant_id, id FROM made
		)
		INSERT INTO member (cohort_id, spread, schedule_id, tenant_id, from_at) SELECT cohort_id, spread, id, tenant_id, now() FROM made`)
	h.exec(`
		INSERT INTO cohort (shard, tenant_id, workflow, hash, timing, missed, next_at, due_at)
		SELECT shard, tenant_id, workflow, decode(lpad(to_hex(n), 32, '0'), 'hex'), timing, missed, next_at + n * interval '1 minute', due_at
		FROM cohort, generate_series(1, 5000) n`)
	h.exec(`ANALYZE`)
	tx, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SET LOCAL random_page_cost = 1.1`); err != nil { // as on any disk without a head
		t.Fatal(err)
	}
	for index, f := range map[string]schedules.Filter{
		"schedule_workflow_key on":   {},
		"schedule_workflow_key on s": {Workflow: "w1"},
		"schedule_workflow_key":      {Workflow: "w1", KeyPrefix: "k12"},
		"label_pkey":                 {Label: "plan:7"},
		"label_pkey on":              {Label: "plan:7", Workflow: "w7"},
		"cohort_next":                {DueBefore: time.Now().AddDate(1, 0, 0)},
		"cohort_next on":             {DueBefore: time.Now().AddDate(1, 0, 0), Workflow: "w"},
	} {
		sql, args := schedules.ListQuery(h.acme, f)
		rows, err := tx.Query(t.Context(), "EXPLAIN "+sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		for _, table := range []string{"schedule s", "schedule_state", "member", "label", "cohort"} {
			if strings.Contains(plan, "Seq Scan on "+table) {
				t.Errorf("%+v reads all of %s:\n%s", f, table, plan)
			}
		}
		if !strings.Contains(plan, "using "+index) && !strings.Contains(plan, "Scan on "+index) {
			t.Errorf("%+v is not served by %s:\n%s", f, index, plan)
		}
	}
}
