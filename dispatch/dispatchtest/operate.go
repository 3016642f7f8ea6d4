package dispatchtest

import (
	"github.com/carillonhq/carillon/operations"
)

func (h *Carillon) Operation(id string) operations.Answer {
	h.T.Helper()
	op, err := h.Config.Operations.Get(h.T.Context(), h.Tenant, id)
	if err != nil {
		h.T.Fatal(err)
	}
	return op
}
