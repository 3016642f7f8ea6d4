package dispatchtest

import (
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/internal/postgres"
)

// HaltNow halts the tenant in a connection of its own, and returns when that is acknowledged.
func (h *Carillon) HaltNow(pgx.Tx) {
	if _, err := h.Dispatch.Control.Halt(postgres.ForTenant(h.T.Context(), int32(h.Tenant)), h.Tenant, control.HaltParams{}); err != nil {
		h.T.Error(err)
	}
}
