package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/operations"
)

// begin begins an operation of the house's tenant.
func (h *house) begin(kind string) operations.Answer {
	h.t.Helper()
	var begun operations.Answer
	err := pgx.BeginFunc(h.t.Context(), h.pool, func(tx pgx.Tx) (err error) {
		begun, err = h.config.Operations.Begin(h.t.Context(), tx, operations.Request{Tenant: h.tenant, Kind: kind, Params: struct{}{}, By: "ann"})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return begun
}

func (h *house) operation(id string) operations.Answer {
	h.t.Helper()
	op, err := h.config.Operations.Get(h.t.Context(), h.tenant, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return op
}

func TestAnOperationIsRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.config.Operations.Register("three", func(_ context.Context, _ pgx.Tx, op *operations.Operation) (bool, error) {
		op.Done++
		op.WaitUntil = op.Now.Add(1) // so that the look must find it
		return op.Done == 3, nil
	})
	h.start(h.dispatch)
	begun := h.begin("three")
	until(t, "it has ended", func() bool { return h.operation(begun.ID).EndedAt != nil })
	if got := h.operation(begun.ID); got.State != operations.Succeeded || got.Done != 3 {
		t.Errorf("got %+v", got)
	}
}

// A process that dies within a step leaves the operation to another, within seconds.
func TestAnOperationOutlivesItsRunner(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first, release := make(chan struct{}), make(chan struct{})
	var steps atomic.Int32
	h.config.Operations.Register("three", func(ctx context.Context, tx pgx.Tx, op *operations.Operation) (bool, error) {
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
	h.start(h.dispatch)
	begun := h.begin("three")
	<-first
	h.start(h.process())
	close(release)
	until(t, "it has ended", func() bool { return h.operation(begun.ID).EndedAt != nil })
	if got := h.operation(begun.ID); got.State != operations.Succeeded || got.Done != 3 {
		t.Errorf("got %+v", got)
	}
}
