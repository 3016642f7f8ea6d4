package lease_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/jackc/pgx/v5"
)

// lookCounter counts the looks for ready ticks: those of single polls, and those for all polls of a process.
type lookCounter struct{ single, shared atomic.Int64 }

func (c *lookCounter) count(sql string) {
	switch {
	case strings.Contains(sql, "SELECT p.tenant, p.workflow"):
		c.shared.Add(1)
	case strings.Contains(sql, "WITH RECURSIVE every"), strings.Contains(sql, "max(r.id), count(*)"):
		c.single.Add(1)
	}
}

func (c *lookCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.count(data.SQL)
	return ctx
}

func (c *lookCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *lookCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *lookCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.count(data.SQL)
}

func (c *lookCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// However many workers wait, one periodic look for all of them finds a ready tick whose notification was lost.
func TestIdlePollsLookTogether(t *testing.T) {
	t.Parallel()
	n := &lookCounter{}
	h := dispatchtest.NewOn(t, dispatchtest.TracedDatabase(t, n))
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("skip"))
	h.Trigger()
	dispatchtest.Until(t, "the tick is ready", func() bool { return h.Number(`SELECT COALESCE(sum(ticks), 0) FROM ready`) == 1 })
	h.Exec(`CREATE TABLE kept AS SELECT * FROM ready`)
	h.Exec(`DELETE FROM ready`)

	const polls = 20
	closing := make(chan struct{})
	var working sync.WaitGroup
	var leased atomic.Int64
	for range polls {
		working.Go(func() {
			body, err := h.Dispatch.Leases.Lease(t.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{"overlap", "other"}, Wait: "1m"}, closing)
			if err != nil {
				t.Error(err)
			}
			leased.Add(int64(strings.Count(string(body), `"tick_id"`)))
		})
	}
	dispatchtest.Until(t, "all have looked", func() bool { return n.single.Load() >= polls })
	before := n.shared.Load()
	dispatchtest.Until(t, "they were looked for some times", func() bool { return n.shared.Load() >= before+3 })
	if got := n.single.Load(); got >= 2*polls { // a notification of the tick may have come late, and have woken one
		t.Errorf("%d polls looked %d times, want once each", polls, got)
	}
	h.Exec(`INSERT INTO ready (tenant_id, workflow, queue, priority, ticks, taken, items) SELECT tenant_id, workflow, queue, priority, ticks, taken, items FROM kept`)
	dispatchtest.Until(t, "one has the tick", func() bool { return leased.Load() == 1 })
	close(closing)
	working.Wait()
	if got := leased.Load(); got != 1 {
		t.Errorf("%d were leased", got)
	}
}
