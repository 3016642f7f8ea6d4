package history_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

func TestTicksOfATenantAreListedByTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	h.Start(h.Dispatch)
	soon := time.Now().UTC().Truncate(time.Second).Add(15 * time.Second) // the schedules are stored by then, on a busy machine too
	spec := calendar.Spec{At: []string{soon.Format("2006-01-02T15:04:05"), soon.Add(time.Second).Format("2006-01-02T15:04:05")}}
	const n = 12
	for i := range n {
		p := schedules.Params{Spec: spec, Policy: &policy.Policy{Overlap: "allow_all", Missed: "all"}} // both times have a tick, also if the sweep is late
		if i == 1 || i == 2 {
			p.Subject = "twin"
		}
		h.Put([]string{"a", "b"}[i%2], fmt.Sprintf("k%d", i), p)
	}
	dispatchtest.Until(t, "all have fired", func() bool { return h.Number(`SELECT count(*) FROM tick`) == 2*n })
	walk := func(query string, limit int) (all []history.Tick) {
		t.Helper()
		cursor := ""
		for range 100 {
			p := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", fmt.Sprintf("/v1/ticks?limit=%d%s%s", limit, query, cursor), "")
			all = append(all, p.Items...)
			if p.NextCursor == nil {
				return all
			}
			cursor = "&cursor=" + *p.NextCursor
			c.Refused(422, "invalid_cursor", "/cursor", "GET", "/v1/ticks?workflow=elsewhere"+cursor, "")
			s.As("rival", tenants.TenantAdmin).Refused(422, "invalid_cursor", "/cursor", "GET", "/v1/ticks?limit=1"+query+cursor, "")
		}
		t.Fatalf("%s: no end", query)
		return nil
	}
	times := soon.Format(time.RFC3339)
	ofA := walk("&workflow=a", 1000)
	const onTime = `SELECT count(*) FROM tick JOIN schedule s ON s.id = schedule_id WHERE cause = 0` // others are caught up
	bySchedule, byItOfOne := h.Number(onTime), h.Number(onTime+` AND key = 'k0'`)
	for _, list := range []struct {
		query string
		want  int
	}{
		{"", 2 * n}, {"&workflow=a", n}, {"&workflow=a&key=k0", 2}, {"&key=k0", 2}, {"&key=none", 0}, {"&workflow=b&key=k0", 0},
		{"&schedule_id=" + ofA[0].ScheduleID, 2}, {"&workflow=b&schedule_id=" + ofA[0].ScheduleID, 0}, {"&schedule_id=sch_none", 0},
		{"&subject=twin", 4}, {"&subject=twin&workflow=a", 2}, {"&subject=k1", 0}, {"&subject=k0", 2}, {"&subject=k0&key=k1", 0}, {"&subject=twin&key=k1", 2},
		{"&cause=schedule", bySchedule}, {"&cause=catch_up", 2*n - bySchedule}, {"&cause=manual", 0}, {"&cause=manual&subject=k0", 0},
		{"&cause=schedule&key=k0", byItOfOne}, {"&cause=catch_up&key=k0", 2 - byItOfOne}, {"&operation=op_none", 0},
		{"&state=running", 2 * n}, {"&state=skipped", 0}, {"&state=failed", 0}, {"&workflow=b&state=running", n},
		{"&to=" + soon.Add(time.Second).Format(time.RFC3339), n}, {"&from=" + soon.Add(time.Second).Format(time.RFC3339), n},
		{"&workflow=a&from=" + times + "&to=" + soon.Add(time.Second).Format(time.RFC3339), n / 2}, {"&to=" + times, 0},
	} {
		for _, limit := range []int{1, 5, 1000} {
			got := walk(list.query, limit)
			if len(got) != list.want {
				t.Errorf("%s by %d: got %d ticks, want %d", list.query, limit, len(got), list.want)
			}
			seen := map[string]bool{}
			for _, one := range got {
				seen[one.TickID] = true
			}
			newestFirst := slices.IsSortedFunc(got, func(a, b history.Tick) int { return b.Timestamp.Compare(a.Timestamp) })
			if len(seen) != len(got) || !newestFirst {
				t.Errorf("%s by %d: %d ticks of %d, newest first: %t", list.query, limit, len(seen), len(got), newestFirst)
			}
		}
	}
	// A tick keeps the subject with which it fired.
	h.Put("a", "k0", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"@yearly"}}, Subject: "later"})
	if before, after := walk("&subject=k0", 10), walk("&subject=later", 10); len(before) != 2 || len(after) != 0 {
		t.Errorf("after a change of the subject got %d ticks of the earlier one and %d of the new one", len(before), len(after))
	}
	for _, one := range h.Lease("a", 2) {
		h.Fail(one)
	}
	if got := walk("&state=failed&workflow=a", 1); len(got) != 2 || got[0].State != "failed" {
		t.Errorf("got %+v", got)
	}
	if got := walk("&state=failed&workflow=b", 1); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	if got := dispatchtest.Get[dispatchtest.Page](s.As("rival", tenants.TenantAdmin), 200, "GET", "/v1/ticks?schedule_id="+ofA[0].ScheduleID, "").Items; len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	for query, pointer := range map[string]string{
		"state=late": "/state", "state=": "/state", "from=x": "/from", "to=x": "/to", "limit=0": "/limit", "workflow=": "/workflow",
		"key=": "/key", "schedule_id=": "/schedule_id", "cursor=": "/cursor", "subject=": "/subject", "subject=%01": "/subject", "cause=": "/cause",
		"cause=chance": "/cause", "operation=": "/operation",
	} {
		c.Refused(422, "invalid", pointer, "GET", "/v1/ticks?"+query, "")
	}
	for query, pointer := range map[string]string{"from=x": "/from", "to=x": "/to", "limit=0": "/limit", "workflow=%2F": "/workflow", "key=": "/key"} {
		c.Refused(422, "invalid", pointer, "GET", "/v1/admin/dead-letters?"+query, "")
	}
}

// counted counts the queries of a pool.
type counted struct{ n atomic.Int64 }

func (c *counted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A page of ticks that came one by one costs as many queries as one of ticks that came together.
func TestAPageOfTicksCostsFewQueries(t *testing.T) {
	t.Parallel()
	queries := &counted{}
	pool, err := postgres.Open(t.Context(), postgrestest.URL(t), postgres.Options{Tracer: queries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h := dispatchtest.NewOn(t, pool)
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.At(3600)})
	const n = 300
	if _, err := pool.Exec(t.Context(), `
		WITH due AS (
			SELECT tenant_id, id, date_trunc('second', now()) - i * interval '1 second' AS at
			FROM schedule, generate_series(1, $1) AS i
		), recorded AS (
			INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
			SELECT tenant_id, id, at, 0, 1, 0, at, at, 0, 1, 2, 0, 0, 0 FROM due
		)
		INSERT INTO tick_time (tenant_id, nominal_at, workflow, ticks, items)
		SELECT tenant_id, at, 'w', 1, set_byte('\x00', 0, (2 * id)::int) FROM due`, n); err != nil {
		t.Fatal(err)
	}
	for _, f := range []history.Filter{{}, {Span: history.Span{State: "succeeded"}}, {Span: history.Span{State: "running"}}} {
		before := queries.n.Load()
		page, next, err := h.Dispatch.Reader.Ticks(t.Context(), h.Tenant, f, n, "")
		if err != nil {
			t.Fatal(err)
		}
		want := n
		if f.State == "running" {
			want = 0
		}
		if len(page) != want || next != nil {
			t.Errorf("%q: got %d ticks, next %v", f.State, len(page), next)
		}
		if cost := queries.n.Load() - before; cost > 20 {
			t.Errorf("%q: %d queries", f.State, cost)
		}
	}
}
