package dispatchtest

import (
	"github.com/jackc/pgx/v5"
)

// OpenAll opens all unopened chunks, for a test in which no process is running.
func (h *Carillon) OpenAll() {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `SELECT id FROM chunk WHERE opened_at IS NULL ORDER BY id`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		h.T.Fatal(err)
	}
	for _, id := range ids {
		if err := h.Dispatch.Open(h.T.Context(), id); err != nil {
			h.T.Fatal(err)
		}
	}
}
