package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// recorded is the use of all days together as the record tells it, as long as it has every tick.
func (h *house) recorded() (u history.Use) {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `
		SELECT '' AS day, '' AS workflow, count(*) AS ticks, count(*) FILTER (WHERE state = 2) AS succeeded, count(*) FILTER (WHERE state = 3) AS failed,
			count(*) FILTER (WHERE state = 4) AS cancelled, count(*) FILTER (WHERE state = 5) AS skipped, COALESCE(sum(missed_count), 0)::bigint AS missed
		FROM tick
		WHERE tenant_id = $1`, h.tenant)
	u, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[history.Use])
	if err != nil {
		h.t.Fatal(err)
	}
	return u
}

// used is what is told of all days together, by workflow or by day.
func (h *house) used(f history.UseFilter) (sum history.Use) {
	h.t.Helper()
	page, _, err := h.dispatch.Reader.Usage(h.t.Context(), h.tenant, f, 1000, "")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, u := range page {
		sum.Ticks, sum.Succeeded, sum.Failed = sum.Ticks+u.Ticks, sum.Succeeded+u.Succeeded, sum.Failed+u.Failed
		sum.Cancelled, sum.Skipped, sum.Missed = sum.Cancelled+u.Cancelled, sum.Skipped+u.Skipped, sum.Missed+u.Missed
	}
	return sum
}

// wantUse compares the use with the record, before and after the use is folded. A tick may end meanwhile, with its use in one
// transaction: the record that did not change while the use was read is the one to compare with.
func (h *house) wantUse(when string) {
	h.t.Helper()
	for range 2 {
		for name, f := range map[string]history.UseFilter{"workflow": {}, "day": {Total: true}} {
			var want, got history.Use
			until(h.t, "no tick ends while the use is read", func() bool {
				want = h.recorded()
				got = h.used(f)
				return want == h.recorded()
			})
			if diff := cmp.Diff(want, got); diff != "" {
				h.t.Errorf("%s: the use by %s is not the record's: %s", when, name, diff)
			}
		}
		if err := h.dispatch.FoldUse(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestUseIsWhatBecameOfTicksWhateverEndsThem(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	trigger := func(workflow string) {
		t.Helper()
		if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, workflow, "k", control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	h.put("skips", "k", rarely("skip"))
	for range 3 {
		trigger("skips")
	}
	h.fail(h.lease("skips", 1)[0])
	h.wantUse("one failed, and two were skipped")

	h.put("waits", "k", rarely("buffer_all"))
	for range 4 {
		trigger("waits")
	}
	last := h.history("waits", "k")
	if _, err := h.dispatch.Control.Cancel(t.Context(), h.tenant, last[3].TickID); err != nil {
		t.Fatal(err)
	}
	h.wantUse("one that waited was cancelled")
	running := h.lease("waits", 1)[0]
	if err := h.schedules.Delete(t.Context(), h.tenant, "waits", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := h.dispatch.CancelOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantUse("those that waited for one of a deleted schedule were cancelled")
	h.finish(running)
	h.wantUse("a tick of a deleted schedule succeeded")

	h.put("newest", "k", rarely("cancel_other"))
	for range 3 {
		trigger("newest")
	}
	h.wantUse("one that waited was superseded")
	if got := h.recorded(); got.Succeeded == 0 || got.Failed == 0 || got.Cancelled < 3 || got.Skipped < 3 {
		t.Errorf("the test shows too little: %+v", got)
	}

	p := everySecond()
	p.Policy = &policy.Policy{Overlap: "skip"}
	h.put("timed", "k", p)
	until(t, "timed ticks were handed out and skipped", func() bool { return len(h.history("timed", "k")) >= 3 })
	if err := h.schedules.Delete(t.Context(), h.tenant, "timed", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	until(t, "all is opened", func() bool { return len(h.chunks()) == 0 })
	h.wantUse("of a schedule")
	if got, want := h.used(history.UseFilter{Workflow: "skips"}), (history.Use{Ticks: 3, Failed: 1, Skipped: 2}); got != want {
		t.Errorf("of one workflow: got %+v, want %+v", got, want)
	}
}

// A tick that a newer one supersedes before it is opened ends when it is opened.
func TestUseOfATickThatIsSupersededBeforeItIsOpened(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("newest", "k", rarely("cancel_other"))
	for range 3 {
		if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "newest", "k", control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	h.start(h.dispatch)
	until(t, "the first was cancelled", func() bool { return h.recorded().Cancelled > 0 })
	h.wantUse("one was cancelled before it was handed out")
	if got, want := h.recorded(), (history.Use{Ticks: 3, Cancelled: 1, Skipped: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestUseOutlivesTheRecord(t *testing.T) {
	t.Parallel()
	h, quota := aging(t)
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("skip"))
	h.endTwo()
	want := h.recorded()
	if err := h.schedules.DeleteWorkflow(t.Context(), h.tenant, "overlap", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if err := h.dispatch.FoldUse(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := tenants.Wide()
	q.TickRetentionDays, q.AuditRetentionDays = 1, 50
	quota.Store(&q)
	h.retain(time.Now().AddDate(0, 0, 40))
	if n := h.number(`SELECT count(*) FROM tick`); n > 0 {
		t.Fatalf("%d ticks are kept", n)
	}
	if got := h.used(history.UseFilter{}); got != want || want.Ticks != 2 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	h.retain(time.Now().AddDate(0, 0, 60))
	if got := h.used(history.UseFilter{}); got != (history.Use{}) {
		t.Errorf("got %+v after what is kept of the audit", got)
	}
}

type usePage struct {
	Items      []history.Use `json:"items"`
	NextCursor *string       `json:"next_cursor"`
}

func TestUsageOverHTTP(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	c := s.operator()
	if got := get[usePage](c, 200, "GET", "/v1/usage", ""); len(got.Items) > 0 {
		t.Errorf("of a tenant that used nothing: got %+v", got)
	}
	var want []history.Use
	for _, day := range []string{"2026-11-21", "2026-11-20"} {
		for _, workflow := range []string{"A", "a", "b"} {
			u := history.Use{Day: day, Workflow: workflow, Ticks: 5, Succeeded: 2, Failed: 1, Skipped: 1, Missed: 3}
			want = append(want, u)
			for _, part := range []int64{2, 3} { // some of it is folded already, of one workflow nothing
				h.exec(`
					INSERT INTO daily_use_delta (tenant_id, workflow, day, ticks, succeeded, failed, skipped, missed)
					VALUES ($1, $2, $3::text::date, $4::bigint, 1, $4 - 2, $4 - 2, 3 * ($4 - 2))`, h.tenant, workflow, day, part)
				if part == 2 && workflow != "b" {
					if err := h.dispatch.FoldUse(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	for limit := 1; limit <= 7; limit++ {
		var all []history.Use
		for path, next := fmt.Sprint("/v1/usage?limit=", limit), ""; ; {
			got := get[usePage](c, 200, "GET", path+next, "")
			if all = append(all, got.Items...); got.NextCursor == nil {
				break
			}
			if len(got.Items) != limit {
				t.Errorf("a page of %d has %d items", limit, len(got.Items))
			}
			next = "&cursor=" + *got.NextCursor
		}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("in pages of %d: %s", limit, diff)
		}
	}
	for path, n := range map[string]int{
		"?workflow=a": 2, "?by=workflow&from=2026-11-21": 3, "?from=2026-11-20&to=2026-11-20&workflow=A": 1, "?to=2026-11-19": 0,
		"?from=2026-11-21&to=2026-11-20": 0, "?by=day": 2, "?workflow=none": 0,
	} {
		if got := get[usePage](c, 200, "GET", "/v1/usage"+path, ""); len(got.Items) != n || got.NextCursor != nil {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	first := get[usePage](c, 200, "GET", "/v1/usage?by=day&limit=1", "")
	if got := first.Items; len(got) != 1 || got[0].Day != "2026-11-21" || got[0].Workflow != "" || got[0].Ticks != 15 {
		t.Errorf("by day: got %+v", got)
	}
	second := get[usePage](c, 200, "GET", "/v1/usage?by=day&limit=1&cursor="+*first.NextCursor, "")
	if got := second.Items; len(got) != 1 || got[0].Day != "2026-11-20" || second.NextCursor != nil {
		t.Errorf("by day, after the first: got %+v", second)
	}
	if got := get[usePage](s.as("rival", tenants.TenantAdmin), 200, "GET", "/v1/usage", ""); len(got.Items) > 0 {
		t.Errorf("another tenant was told %+v", got)
	}
	s.as("acme", tenants.SchedulesRead, tenants.SchedulesWrite, tenants.TicksWork).refused(403, "insufficient_scope", "", "GET", "/v1/usage", "")
	for query, pointer := range map[string]string{
		"from=today": "/from", "to=2026-02-30": "/to", "from=1969-12-31": "/from", "from=": "/from", "by=hour": "/by", "by=": "/by",
		"by=day&workflow=a": "/by", "workflow=": "/workflow", "limit=0": "/limit", "cursor=x": "/cursor", "cursor=" + *first.NextCursor: "/cursor",
		"from=x&to=y": "/from /to",
	} {
		if a := c.do("GET", "/v1/usage?"+query, ""); a.status != 422 {
			t.Errorf("%s: got %d %s", query, a.status, a.body)
		} else if got := pointers(a); got != pointer {
			t.Errorf("%s: got %q, want %q", query, got, pointer)
		}
	}
}

func pointers(a answer) (all string) {
	for i, e := range a.Errors {
		if i > 0 {
			all += " "
		}
		all += e.Pointer
	}
	return all
}
