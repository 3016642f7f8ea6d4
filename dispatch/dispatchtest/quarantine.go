package dispatchtest

import (
	"fmt"
)

// Neighbour stores a due schedule of another tenant in a shard, and returns a function that counts its swept ticks.
func (h *Carillon) Neighbour(shard int16) (swept func() int) {
	h.T.Helper()
	own := h.Tenant
	defer func() { h.Tenant = own }()
	h.Tenant = h.Quota("neighbour", 1000)
	other := h.Tenant
	h.Exec(`UPDATE tenant SET shards = 64 WHERE id = $1`, other)
	for i := 0; h.Number(`SELECT count(*) FROM cohort WHERE shard = $1 AND tenant_id = $2`, shard, other) == 0; i++ {
		h.Put("small", fmt.Sprint(i), Daily(0))
	}
	h.Backdate(other)
	return func() int {
		return h.Number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE tenant_id = $1 AND shard = $2`, other, shard)
	}
}

func (h *Carillon) SweepOnce(shard int16) {
	h.T.Helper()
	if _, err := h.Dispatch.SweepOnce(h.T.Context(), shard); err != nil {
		h.T.Fatal(err)
	}
}
