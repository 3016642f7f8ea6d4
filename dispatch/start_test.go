package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// slowConnections fails River's first readings, as connections do that take longer than their limit.
type slowConnections struct{ left atomic.Int32 }

func (s *slowConnections) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == "SELECT 1" && s.left.Add(-1) >= 0 {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	return ctx
}

func (*slowConnections) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A process begins to work although River's first connections fail.
func TestAProcessStartsAlthoughTheFirstConnectionOfJobsFails(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	var slow slowConnections
	slow.left.Store(2)
	h.Traced(&slow)
	h.Start(h.Process())
	if n := slow.left.Load(); n != -1 {
		t.Errorf("%d more readings fail", n)
	}
}
