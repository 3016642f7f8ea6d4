package dispatch_test

import (
	"testing"

	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/tenants"
)

// Each poll of a worker asks how many ticks the tenant's workers hold. It reads no leases of other tenants, and none that ended.
func TestCountOfLeasedTicksReadsTheTenantsLiveLeasesOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	other, err := tenants.Ensure(t.Context(), h.pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	const lease = `
		INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
		SELECT $1, 'w', clock_timestamp(), clock_timestamp() + $2::interval, 1, '' FROM generate_series(1, $3::int)`
	h.exec(lease, other.ID, "10 minutes", 10_000)
	h.exec(lease, h.tenant, "-1 minute", 10_000)
	h.exec(lease, h.tenant, "10 minutes", 3)
	h.exec(`ANALYZE lease`)
	if n, err := h.dispatch.Leased(t.Context(), h.tenant); err != nil || n != 3 {
		t.Errorf("got %d and %v, want 3", n, err)
	}
	r := &recorder{ran: map[string][]any{dispatch.LeasedTicks: {h.tenant}}}
	for _, n := range h.entries(r, "FROM lease") {
		t.Logf("%d index entries read", n)
		if n > 10 {
			t.Errorf("%d index entries read of 3 live leases", n)
		}
	}
	if n := h.number(`SELECT count(*) FROM pg_stat_user_tables WHERE relname = 'lease' AND seq_tup_read > 0`); n > 0 {
		t.Error("the leases are read whole")
	}
}
