package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/schedules"
)

// notifies counts the statements that notify: those in a transaction that goes on, and those of their own.
type notifies struct{ within, alone atomic.Int64 }

func (n *notifies) count(conn *pgx.Conn, sql string, single bool) {
	switch {
	case !strings.Contains(sql, "pg_notify"):
	case single && conn.PgConn().TxStatus() == 'I':
		n.alone.Add(1)
	default:
		n.within.Add(1)
	}
}

func (n *notifies) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	n.count(conn, data.SQL, true)
	return ctx
}
func (n *notifies) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (n *notifies) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		n.count(conn, q.SQL, data.Batch.Len() == 1)
	}
	return ctx
}
func (n *notifies) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (n *notifies) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// notifying makes a house whose pools count the statements that notify.
func notifying(t *testing.T) (*house, *notifies) {
	t.Helper()
	n := &notifies{}
	return newHouseOn(t, tracedDatabase(t, n)), n
}

// tracedDatabase returns a pool on a database of the test's own whose calls pass a tracer too.
func tracedDatabase(t *testing.T, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config := postgrestest.Database(t).Config()
	config.ConnConfig.Tracer = multitracer.New(config.ConnConfig.Tracer, tracer)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// No transaction notifies: its COMMIT would hold a lock of the whole cluster until it is flushed.
func TestNoTransactionNotifies(t *testing.T) {
	t.Parallel()
	h, n := notifying(t)
	h.start(h.dispatch)
	step := func(what string, do func()) {
		do()
		if within := n.within.Swap(0); within > 0 {
			t.Errorf("%s: %d statements in transactions notify", what, within)
		}
	}
	step("a put and a sweep", func() {
		h.put("w", "soon", everySecond())
		until(t, "it fires", func() bool { return len(h.history("w", "soon")) > 0 })
	})
	step("a due tick of a schedule that is changed", func() {
		p := everySecond()
		h.put("w", "changed", p)
		for i := 0; len(h.history("w", "changed")) == 0; i++ {
			p.Spec.Intervals[0].Every = fmt.Sprintf("%ds", 1+i%2)
			h.put("w", "changed", p)
		}
	})
	h.put("overlap", "k", rarely("buffer_all"))
	step("triggers", func() { h.trigger(); h.trigger() })
	step("the end of a tick that another waits for", func() { h.finish(h.lease("overlap", 1)[0]) })
	one := h.lease("overlap", 1)[0]
	h.fail(one)
	step("a replay", func() {
		if _, _, err := h.dispatch.Control.Replay(t.Context(), h.tenant, one.TickID, once.Request{}); err != nil {
			t.Fatal(err)
		}
	})
	h.put("w", "k", hourly("skip"))
	from, to := hours(1)
	step("a backfill", func() { h.ended(h.backfill(from, to, "buffer_all").ID) })
	step("an edit of a calendar", func() {
		h.putCalendar("2027-01-01")
		h.put("w", "named", schedules.Params{Spec: offSpec("0 0 1 1 *")})
		h.putCalendar("2027-01-02")
	})
	step("slots", func() {
		c := h.catcher("limited", 1, nil)
		h.limit("limited", new("limited"), new(int32(1)))
		h.fire("limited", 3, 1)
		until(t, "all are pushed", func() bool { return len(c.caught()) == 3 })
	})
	if n.alone.Load() == 0 {
		t.Error("nothing notifies")
	}
}
