package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules"
)

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
	h := newHouseOn(t, pool)
	h.put("w", "k", schedules.Params{Spec: at(3600)})
	const n = 300
	if _, err := pool.Exec(t.Context(), `
		WITH due AS (
			SELECT tenant_id, id, date_trunc('second', now()) - i * interval '1 second' AS at
			FROM schedule, generate_series(1, $1) AS i
		), recorded AS (
			INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
			SELECT tenant_id, id, at, 0, 1, 0, at, at, 0, 1, 2, 0, 0, 0 FROM due
		)
		INSERT INTO roll (tenant_id, nominal_at, workflow, ticks, items)
		SELECT tenant_id, at, 'w', 1, set_byte('\x00', 0, (2 * id)::int) FROM due`, n); err != nil {
		t.Fatal(err)
	}
	for _, f := range []history.Filter{{}, {Span: history.Span{State: "succeeded"}}, {Span: history.Span{State: "running"}}} {
		before := queries.n.Load()
		page, next, err := h.dispatch.Reader.Ticks(t.Context(), h.tenant, f, n, "")
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
