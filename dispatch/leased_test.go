package dispatch_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
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
	const insertLease = `
		INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
		SELECT $1, 'w', clock_timestamp(), clock_timestamp() + $2::interval, 1, '' FROM generate_series(1, $3::int)`
	h.exec(insertLease, other.ID, "10 minutes", 10_000)
	h.exec(insertLease, h.tenant, "-1 minute", 10_000)
	h.exec(insertLease, h.tenant, "10 minutes", 3)
	h.exec(`ANALYZE lease`)
	if n, err := lease.Leased(h.config.API)(t.Context(), h.tenant); err != nil || n != 3 {
		t.Errorf("got %d and %v, want 3", n, err)
	}
	r := &recorder{ran: map[string][]any{leasedTicks: {h.tenant}}}
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

// However many polls run at once, a tenant's workers hold at most as many ticks as the quota allows.
func TestParallelPollsLeaseNoMoreThanTheQuota(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ quota, max int }{"few": {25, 10}, "many": {1200, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
				q := tenants.Wide()
				q.Leased = c.quota
				return q, nil
			}
			d := h.process()
			h.exec(`
				INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
				SELECT $1, 'w', clock_timestamp(), clock_timestamp() + '10 minutes', $2, ''`, h.tenant, c.quota-25)
			h.readyHerd("w", 400)
			var polls sync.WaitGroup
			for range 40 {
				polls.Go(func() {
					_, err := d.Leases.Lease(postgres.ForTenant(t.Context(), int32(h.tenant)), h.tenant, lease.LeaseParams{Workflows: []string{"w"}, Max: &c.max}, nil)
					if f, refused := errors.AsType[*fault.Error](err); err != nil && (!refused || f.Status != 429) {
						t.Error(err)
					}
				})
			}
			polls.Wait()
			if n, err := lease.Leased(h.config.API)(t.Context(), h.tenant); err != nil || n != c.quota {
				t.Errorf("%d ticks are leased, %v; the quota is %d", n, err, c.quota)
			}
		})
	}
}
