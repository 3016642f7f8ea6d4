package schedules_test

import (
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/google/go-cmp/cmp"
)

// A list whose index does not tell the status that is asked for looks at so many schedules a page: its pages are short, and lead on
// to all that there is.
func TestAPageLooksAtSoManySchedules(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.crowd()
	h.exec(`UPDATE schedule SET labels = labels || '{"all": "1"}'`)
	h.exec(`ANALYZE`)
	check := func(f schedules.Filter, atLeast int) {
		t.Helper()
		var got []string
		pages, cursor := 0, ""
		for {
			page, next, err := h.schedules.List(h.t.Context(), h.acme, f, 100, cursor)
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
		want := h.names(f)
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
	rows := regexp.MustCompile(`actual [^)]*rows=(\d+)`)
	bounded := func(f schedules.Filter) {
		t.Helper()
		for _, read := range []func() (string, []any){
			func() (string, []any) { return schedules.ListQuery(h.acme, f) },
			func() (string, []any) { return schedules.LastQuery(h.acme, f) },
		} {
			sql, args := read()
			if f.KeyPrefix != "" && f.Workflow == "" && slices.Contains(args, any(101)) {
				continue // it is read through a known place only
			}
			plan := h.plan("EXPLAIN (ANALYZE)", sql, args...)
			for _, part := range rows.FindAllStringSubmatch(plan, -1) {
				if n, _ := strconv.Atoi(part[1]); n > 6_000 {
					t.Fatalf("%+v reads %d rows:\n%s", f, n, plan)
				}
			}
		}
	}
	for _, f := range sparse {
		bounded(f)
	}
	h.exec(`UPDATE schedule SET status = 'paused', paused_at = now(), cohort_id = NULL WHERE status = 'active' AND id % 900 > 0`)
	h.exec(`ANALYZE`)
	check(schedules.Filter{Status: policy.Active}, 4)
	bounded(schedules.Filter{Status: policy.Active})
}

// names are the schedules of a status with a label or prefix, as their rows tell.
func (h *home) names(f schedules.Filter) (names []string) {
	h.t.Helper()
	return one[[]string](h, `
		SELECT array_agg(workflow || '/' || key ORDER BY workflow, key)
		FROM schedule
		WHERE status = $1 AND starts_with(key, $2) AND ($3 = '' OR workflow = $3) AND ($4 = '' OR labels @> jsonb_build_object(split_part($4, ':', 1), split_part($4, ':', 2)))`,
		f.Status, f.KeyPrefix, f.Workflow, f.Label)
}
