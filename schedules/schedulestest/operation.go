package schedulestest

import (
	"testing"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/operations"
)

// OperationNumber returns the id of an operation's row.
func OperationNumber(t testing.TB, id string) int64 {
	t.Helper()
	ids, err := ident.New(make([]byte, ident.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	n, ok := ids.ParseOperation(id)
	if !ok {
		t.Fatalf("%q is not an operation's id", id)
	}
	return n
}

// Operate runs the steps of an operation that are due, and reads it.
func (h *Fixture) Operate(id string) operations.Answer {
	h.T.Helper()
	if err := h.Schedules.Operations.Run(h.T.Context(), OperationNumber(h.T, id)); err != nil {
		h.T.Fatal(err)
	}
	return h.Operation(id)
}

// Operation reads an operation of acme.
func (h *Fixture) Operation(id string) operations.Answer {
	h.T.Helper()
	op, err := h.Schedules.Operations.Get(h.T.Context(), h.Acme, id)
	if err != nil {
		h.T.Fatal(err)
	}
	return op
}
