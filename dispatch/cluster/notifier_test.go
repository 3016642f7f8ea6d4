package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/jackc/pgx/v5"
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

func (n *notifies) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// notifying makes a Carillon whose pools count the statements that notify.
func notifying(t *testing.T) (*dispatchtest.Carillon, *notifies) {
	t.Helper()
	n := &notifies{}
	return dispatchtest.NewOn(t, dispatchtest.TracedDatabase(t, n)), n
}

// No transaction notifies: its COMMIT would hold a lock of the whole cluster until it is flushed.
func TestNoTransactionNotifies(t *testing.T) {
	t.Parallel()
	h, n := notifying(t)
	h.Start(h.Dispatch)
	step := func(what string, do func()) {
		do()
		if within := n.within.Swap(0); within > 0 {
			t.Errorf("%s: %d statements in transactions notify", what, within)
		}
	}
	step("a put and a sweep", func() {
		h.Put("w", "soon", dispatchtest.EverySecond())
		dispatchtest.Until(t, "it fires", func() bool { return len(h.History("w", "soon")) > 0 })
	})
	step("a due tick of a schedule that is changed", func() {
		p := dispatchtest.EverySecond()
		h.Put("w", "changed", p)
		for i := 0; len(h.History("w", "changed")) == 0; i++ {
			p.Spec.Intervals[0].Every = fmt.Sprintf("%ds", 1+i%2)
			h.Put("w", "changed", p)
		}
	})
	h.Put("overlap", "k", dispatchtest.Rarely("buffer_all"))
	step("triggers", func() { h.Trigger(); h.Trigger() })
	step("the end of a tick that another waits for", func() { h.Finish(h.Lease("overlap", 1)[0]) })
	one := h.Lease("overlap", 1)[0]
	h.Fail(one)
	step("a replay", func() {
		if _, _, err := h.Dispatch.Replays.Replay(t.Context(), h.Tenant, one.TickID, once.Request{}); err != nil {
			t.Fatal(err)
		}
	})
	h.Put("w", "k", dispatchtest.Hourly("skip"))
	from, to := dispatchtest.Hours(1)
	step("a backfill", func() { h.Ended(h.Backfill(from, to, "buffer_all").ID) })
	step("an edit of a calendar", func() {
		h.PutCalendar("2027-01-01")
		h.Put("w", "named", schedules.Params{Spec: dispatchtest.OffSpec("0 0 1 1 *")})
		h.PutCalendar("2027-01-02")
	})
	step("slots", func() {
		c := h.Catcher("limited", 1, nil)
		h.Limit("limited", new("limited"), new(int32(1)))
		h.Fire("limited", 3, 1)
		dispatchtest.Until(t, "all are pushed", func() bool { return len(dispatchtest.KeysOf(c.Caught())) == 3 })
	})
	if n.alone.Load() == 0 {
		t.Error("nothing notifies")
	}
}
