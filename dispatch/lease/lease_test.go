package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// An answer to a lease ends before it holds too many bytes. The ticks that do not fit are leased later, in their first attempt.
func TestALeaseEndsBeforeItHoldsTooMuch(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	p := dispatchtest.Rarely("allow_all")
	p.Payload = web.Raw(`"` + strings.Repeat("x", 60_000) + `"`)
	c.Put("w", "k", p)
	const n = 170
	for range n {
		dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	}
	type handed struct {
		TickID  string `json:"tick_id"`
		Attempt int
		Payload string
	}
	seen := map[string]bool{}
	for polls := 0; len(seen) < n; polls++ {
		got := dispatchtest.Get[struct{ Ticks []handed }](c, 200, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "max": 1000, "wait": "1m"}`).Ticks
		bytes := 0
		for _, one := range got {
			if bytes += len(one.Payload); one.Attempt != 1 || seen[one.TickID] || len(one.Payload) != 60_000 {
				t.Errorf("got %s in attempt %d with %d bytes", one.TickID, one.Attempt, len(one.Payload))
			}
			seen[one.TickID] = true
		}
		if bytes > web.MostPage || len(got) == 0 {
			t.Fatalf("poll %d: %d ticks of %d bytes", polls, len(got), bytes)
		}
	}
}

// Each poll of a worker asks how many ticks the tenant's workers hold. It reads no leases of other tenants, and none that ended.
func TestCountOfLeasedTicksReadsTheTenantsLiveLeasesOnly(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other, err := tenants.Ensure(t.Context(), h.Pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	const insertLease = `
		INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
		SELECT $1, 'w', clock_timestamp(), clock_timestamp() + $2::interval, 1, '' FROM generate_series(1, $3::int)`
	h.Exec(insertLease, other.ID, "10 minutes", 10_000)
	h.Exec(insertLease, h.Tenant, "-1 minute", 10_000)
	h.Exec(insertLease, h.Tenant, "10 minutes", 3)
	h.Exec(`ANALYZE lease`)
	if n, err := lease.Leased(h.Config.API)(t.Context(), h.Tenant); err != nil || n != 3 {
		t.Errorf("got %d and %v, want 3", n, err)
	}
	r := &dispatchtest.Recorder{Ran: map[string][]any{dispatchtest.LeasedTicks: {h.Tenant}}}
	for _, n := range h.Entries(r, "FROM lease") {
		t.Logf("%d index entries read", n)
		if n > 10 {
			t.Errorf("%d index entries read of 3 live leases", n)
		}
	}
	if n := h.Number(`SELECT count(*) FROM pg_stat_user_tables WHERE relname = 'lease' AND seq_tup_read > 0`); n > 0 {
		t.Error("the leases are read whole")
	}
}

// However many polls run at once, a tenant's workers hold at most as many ticks as the quota allows.
func TestParallelPollsLeaseNoMoreThanTheQuota(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ quota, max int }{"few": {25, 10}, "many": {1200, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := dispatchtest.New(t)
			h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
				q := tenants.Wide()
				q.Leased = c.quota
				return q, nil
			}
			d := h.Process()
			h.Exec(`
				INSERT INTO lease (tenant_id, worker, leased_at, until_at, unended, ticks)
				SELECT $1, 'w', clock_timestamp(), clock_timestamp() + '10 minutes', $2, ''`, h.Tenant, c.quota-25)
			h.ReadyHerd("w", 400)
			var polls sync.WaitGroup
			for range 40 {
				polls.Go(func() {
					_, err := d.Leases.Lease(postgres.ForTenant(t.Context(), int32(h.Tenant)), h.Tenant, lease.LeaseParams{Workflows: []string{"w"}, Max: &c.max}, nil)
					if f, refused := errors.AsType[*fault.Error](err); err != nil && (!refused || f.Status != 429) {
						t.Error(err)
					}
				})
			}
			polls.Wait()
			if n, err := lease.Leased(h.Config.API)(t.Context(), h.Tenant); err != nil || n != c.quota {
				t.Errorf("%d ticks are leased, %v; the quota is %d", n, err, c.quota)
			}
		})
	}
}

// The timeout that a workflow gives its schedules bounds leases and heartbeats too.
func TestALeaseEndsWithTheTimeoutOfItsWorkflow(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	timeout := &policy.Defaults{Delivery: &policy.Delivery{Timeout: "20s"}}
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, "bounded", schedules.WorkflowParams{Defaults: timeout}); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Dispatch)
	h.Put("bounded", "k", schedules.Params{Spec: dispatchtest.At(15)})
	one := h.Lease("bounded", 1)[0]
	if seconds := h.Number(`SELECT extract(epoch FROM until_at - leased_at)::int FROM lease`); seconds != 20 {
		t.Errorf("the lease lasts %d s, want 20", seconds)
	}
	beaten, err := h.Dispatch.Leases.Beat(t.Context(), h.Tenant, []lease.Beat{{TickID: one.TickID, LeaseToken: one.LeaseToken, Lease: "10m"}})
	if err != nil || beaten[0].LeaseUntil == nil {
		t.Fatalf("got %+v, %v", beaten, err)
	}
	var began time.Time
	if err := h.Pool.QueryRow(t.Context(), `SELECT leased_at FROM lease`).Scan(&began); err != nil {
		t.Fatal(err)
	}
	if length := beaten[0].LeaseUntil.Sub(began); length != 20*time.Second {
		t.Errorf("a heartbeat lengthens the lease to %s, want 20 s", length)
	}
}
