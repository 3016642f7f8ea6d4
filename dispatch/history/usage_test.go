package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// recorded returns the use of all days together, computed from the ticks. It is right while no tick was deleted.
func recorded(h *dispatchtest.Carillon) (u history.Use) {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `
		SELECT '' AS day, '' AS workflow, count(*) AS ticks, count(*) FILTER (WHERE state = 2) AS succeeded, count(*) FILTER (WHERE state = 3) AS failed,
			count(*) FILTER (WHERE state = 4) AS cancelled, count(*) FILTER (WHERE state = 5) AS skipped, COALESCE(sum(missed_count), 0)::bigint AS missed
		FROM tick
		WHERE tenant_id = $1`, h.Tenant)
	u, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[history.Use])
	if err != nil {
		h.T.Fatal(err)
	}
	return u
}

// used returns the sum of the use that Usage reports for all days, by workflow or by day.
func used(h *dispatchtest.Carillon, f history.UseFilter) (sum history.Use) {
	h.T.Helper()
	page, _, err := h.Dispatch.Reader.Usage(h.T.Context(), h.Tenant, f, 1000, "")
	if err != nil {
		h.T.Fatal(err)
	}
	for _, u := range page {
		sum.Ticks, sum.Succeeded, sum.Failed = sum.Ticks+u.Ticks, sum.Succeeded+u.Succeeded, sum.Failed+u.Failed
		sum.Cancelled, sum.Skipped, sum.Missed = sum.Cancelled+u.Cancelled, sum.Skipped+u.Skipped, sum.Missed+u.Missed
	}
	return sum
}

// wantUse compares the use with the record, before and after the use is folded. A tick may end meanwhile, with its use in one
// transaction: the record that did not change while the use was read is the one to compare with.
func wantUse(h *dispatchtest.Carillon, when string) {
	h.T.Helper()
	for range 2 {
		for name, f := range map[string]history.UseFilter{"workflow": {}, "day": {Total: true}} {
			var want, got history.Use
			dispatchtest.Until(h.T, "no tick ends while the use is read", func() bool {
				want = recorded(h)
				got = used(h, f)
				return want == recorded(h)
			})
			if diff := cmp.Diff(want, got); diff != "" {
				h.T.Errorf("%s: the use by %s is not the record's: %s", when, name, diff)
			}
		}
		if err := h.Dispatch.FoldUse(h.T.Context()); err != nil {
			h.T.Fatal(err)
		}
	}
}

func TestUseIsWhatBecameOfTicksWhateverEndsThem(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	trigger := func(workflow string) {
		t.Helper()
		if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, workflow, "k", control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	h.Put("skips", "k", dispatchtest.Rarely("skip"))
	for range 3 {
		trigger("skips")
	}
	h.Fail(h.Lease("skips", 1)[0])
	wantUse(h, "one failed, and two were skipped")

	h.Put("waits", "k", dispatchtest.Rarely("buffer_all"))
	for range 4 {
		trigger("waits")
	}
	last := h.History("waits", "k")
	if _, err := h.Dispatch.Control.Cancel(t.Context(), h.Tenant, last[3].TickID); err != nil {
		t.Fatal(err)
	}
	wantUse(h, "one that waited was cancelled")
	running := h.Lease("waits", 1)[0]
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "waits", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Dispatch.CancelOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantUse(h, "those that waited for one of a deleted schedule were cancelled")
	h.Finish(running)
	wantUse(h, "a tick of a deleted schedule succeeded")

	h.Put("newest", "k", dispatchtest.Rarely("cancel_other"))
	trigger("newest")
	replaced := h.Lease("newest", 1)[0] // while it runs, the others wait
	trigger("newest")
	trigger("newest")
	dispatchtest.Until(t, "one that waited was superseded", func() bool { return recorded(h).Skipped >= 3 })
	wantUse(h, "one that waited was superseded")
	h.Finish(replaced)
	wantUse(h, "one that a newer one replaced has ended")
	if got := recorded(h); got.Succeeded == 0 || got.Failed == 0 || got.Cancelled < 4 || got.Skipped < 3 {
		t.Errorf("the test shows too little: %+v", got)
	}

	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "skip"}
	h.Put("timed", "k", p)
	dispatchtest.Until(t, "timed ticks were handed out and skipped", func() bool { return len(h.History("timed", "k")) >= 3 })
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "timed", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "all is opened", func() bool { return len(h.Chunks()) == 0 })
	wantUse(h, "of a schedule")
	if got, want := used(h, history.UseFilter{Workflow: "skips"}), (history.Use{Ticks: 3, Failed: 1, Skipped: 2}); got != want {
		t.Errorf("of one workflow: got %+v, want %+v", got, want)
	}
}

// A tick that a newer one supersedes before it is opened ends when it is opened.
func TestUseOfATickThatIsSupersededBeforeItIsOpened(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("newest", "k", dispatchtest.Rarely("cancel_other"))
	for range 3 {
		if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "newest", "k", control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "the first was cancelled", func() bool { return recorded(h).Cancelled > 0 })
	wantUse(h, "one was cancelled before it was handed out")
	if got, want := recorded(h), (history.Use{Ticks: 3, Cancelled: 1, Skipped: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestUseOutlivesTheRecord(t *testing.T) {
	t.Parallel()
	h, quota := dispatchtest.Aging(t)
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("skip"))
	h.EndTwo()
	want := recorded(h)
	if err := h.Schedules.DeleteWorkflow(t.Context(), h.Tenant, "overlap", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Dispatch.FoldUse(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := tenants.Wide()
	q.TickRetentionDays, q.AuditRetentionDays = 1, 50
	quota.Store(&q)
	h.Retain(time.Now().AddDate(0, 0, 40))
	if n := h.Number(`SELECT count(*) FROM tick`); n > 0 {
		t.Fatalf("%d ticks are kept", n)
	}
	if got := used(h, history.UseFilter{}); got != want || want.Ticks != 2 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	h.Retain(time.Now().AddDate(0, 0, 60))
	if got := used(h, history.UseFilter{}); got != (history.Use{}) {
		t.Errorf("got %+v after what is kept of the audit", got)
	}
}

type usePage struct {
	Items      []history.Use `json:"items"`
	NextCursor *string       `json:"next_cursor"`
}

func TestUsageOverHTTP(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	if got := dispatchtest.Get[usePage](c, 200, "GET", "/v1/usage", ""); len(got.Items) > 0 {
		t.Errorf("of a tenant that used nothing: got %+v", got)
	}
	var want []history.Use
	for _, day := range []string{"2026-11-21", "2026-11-20"} {
		for _, workflow := range []string{"A", "a", "b"} {
			u := history.Use{Day: day, Workflow: workflow, Ticks: 5, Succeeded: 2, Failed: 1, Skipped: 1, Missed: 3}
			want = append(want, u)
			for _, part := range []int64{2, 3} { // some of it is folded already, of one workflow nothing
				h.Exec(`
					INSERT INTO daily_use_delta (tenant_id, workflow, day, ticks, succeeded, failed, skipped, missed)
					VALUES ($1, $2, $3::text::date, $4::bigint, 1, $4 - 2, $4 - 2, 3 * ($4 - 2))`, h.Tenant, workflow, day, part)
				if part == 2 && workflow != "b" {
					if err := h.Dispatch.FoldUse(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	for limit := 1; limit <= 7; limit++ {
		var all []history.Use
		for path, next := fmt.Sprint("/v1/usage?limit=", limit), ""; ; {
			got := dispatchtest.Get[usePage](c, 200, "GET", path+next, "")
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
		if got := dispatchtest.Get[usePage](c, 200, "GET", "/v1/usage"+path, ""); len(got.Items) != n || got.NextCursor != nil {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	first := dispatchtest.Get[usePage](c, 200, "GET", "/v1/usage?by=day&limit=1", "")
	if got := first.Items; len(got) != 1 || got[0].Day != "2026-11-21" || got[0].Workflow != "" || got[0].Ticks != 15 {
		t.Errorf("by day: got %+v", got)
	}
	second := dispatchtest.Get[usePage](c, 200, "GET", "/v1/usage?by=day&limit=1&cursor="+*first.NextCursor, "")
	if got := second.Items; len(got) != 1 || got[0].Day != "2026-11-20" || second.NextCursor != nil {
		t.Errorf("by day, after the first: got %+v", second)
	}
	if got := dispatchtest.Get[usePage](s.As("rival", tenants.TenantAdmin), 200, "GET", "/v1/usage", ""); len(got.Items) > 0 {
		t.Errorf("another tenant was told %+v", got)
	}
	s.As("acme", tenants.SchedulesRead, tenants.SchedulesWrite, tenants.TicksWork).Refused(403, "insufficient_scope", "", "GET", "/v1/usage", "")
	for query, pointer := range map[string]string{
		"from=today": "/from", "to=2026-02-30": "/to", "from=1969-12-31": "/from", "from=": "/from", "by=hour": "/by", "by=": "/by",
		"by=day&workflow=a": "/by", "workflow=": "/workflow", "limit=0": "/limit", "cursor=x": "/cursor", "cursor=" + *first.NextCursor: "/cursor",
		"from=x&to=y": "/from /to",
	} {
		if a := c.Do("GET", "/v1/usage?"+query, ""); a.Status != 422 {
			t.Errorf("%s: got %d %s", query, a.Status, a.Body)
		} else if got := pointers(a); got != pointer {
			t.Errorf("%s: got %q, want %q", query, got, pointer)
		}
	}
}

func pointers(a dispatchtest.Answer) (all string) {
	for i, e := range a.Errors {
		if i > 0 {
			all += " "
		}
		all += e.Pointer
	}
	return all
}
