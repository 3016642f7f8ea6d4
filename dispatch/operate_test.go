package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/operations"
	"github.com/jackc/pgx/v5"
)

// begin begins an operation of the tenant.
func begin(h *dispatchtest.Carillon, kind string) operations.Answer {
	h.T.Helper()
	var begun operations.Answer
	err := pgx.BeginFunc(h.T.Context(), h.Pool, func(tx pgx.Tx) (err error) {
		begun, err = h.Config.Operations.Begin(h.T.Context(), tx, operations.Request{Tenant: h.Tenant, Kind: kind, Params: struct{}{}, By: "ann"})
		return err
	})
	if err != nil {
		h.T.Fatal(err)
	}
	return begun
}

func TestAnOperationIsRun(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Operations.Register("three", func(_ context.Context, _ pgx.Tx, op *operations.Operation) (bool, error) {
		op.Done++
		op.WaitUntil = op.Now.Add(1) // so that the look must find it
		return op.Done == 3, nil
	})
	h.Start(h.Dispatch)
	begun := begin(h, "three")
	dispatchtest.Until(t, "it has ended", func() bool { return h.Operation(begun.ID).EndedAt != nil })
	if got := h.Operation(begun.ID); got.State != operations.Succeeded || got.Done != 3 {
		t.Errorf("got %+v", got)
	}
}

// A process that dies within a step leaves the operation to another, within seconds.
func TestAnOperationOutlivesItsRunner(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	first, release := make(chan struct{}), make(chan struct{})
	var steps atomic.Int32
	h.Config.Operations.Register("three", func(ctx context.Context, tx pgx.Tx, op *operations.Operation) (bool, error) {
		if steps.Add(1) == 2 {
			close(first)
			<-release
			if err := tx.Conn().Close(ctx); err != nil {
				return false, err
			}
		}
		op.Done++
		return op.Done == 3, nil
	})
	h.Start(h.Dispatch)
	begun := begin(h, "three")
	<-first
	h.Start(h.Process())
	close(release)
	dispatchtest.Until(t, "it has ended", func() bool { return h.Operation(begun.ID).EndedAt != nil })
	if got := h.Operation(begun.ID); got.State != operations.Succeeded || got.Done != 3 {
		t.Errorf("got %+v", got)
	}
}
