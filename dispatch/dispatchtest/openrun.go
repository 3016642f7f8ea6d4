package dispatchtest

import (
	"fmt"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// SweptRun makes one due schedule for each of n tenants in one shard, and sweeps the shard. The chunks, one for each tenant, share a job.
func (h *Carillon) SweptRun(n int) (chunks []int64, owners []tenants.ID) {
	h.T.Helper()
	if err := h.Dispatch.Register(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	for i := range n {
		owner := h.Quota(fmt.Sprint("tenant-", i), 50_000)
		if _, _, err := h.Schedules.Put(postgres.ForTenant(h.T.Context(), int32(owner)), policy.Name{Tenant: owner, Workflow: "w", Key: "k"}, Daily(i), "tester", version.Precondition{}); err != nil {
			h.T.Fatal(err)
		}
		h.Backdate(owner)
		owners = append(owners, owner)
	}
	h.Exec(`UPDATE schedule SET shard = 7`)
	h.Exec(`UPDATE cohort SET shard = 7`)
	h.Exec(`UPDATE cohort_timing SET shard = 7`)
	if _, err := h.Dispatch.SweepOnce(h.T.Context(), 7); err != nil {
		h.T.Fatal(err)
	}
	chunks = h.Chunks()
	if jobs := h.Number(`SELECT count(*) FROM river_job WHERE kind = 'open'`); len(chunks) != n || jobs != 1 {
		h.T.Fatalf("%d chunks and %d jobs of %d tenants", len(chunks), jobs, n)
	}
	return chunks, owners
}
