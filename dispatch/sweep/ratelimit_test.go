package sweep_test

import (
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
)

// A tenant that owes days at one tick a second pays at its raised rate, and fires at once.
func TestADebtIsPaidAtTheRaisedRate(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Quota("acme", 1)
	h.Dispatch.Owe(h.Tenant, 200_000)
	if err := h.Dispatch.SettleDebts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM allowance WHERE spent_to BETWEEN clock_timestamp() + interval '1 second' AND clock_timestamp() + interval '1 minute'`); n != 1 {
		t.Error("the tenant does not owe between a second and a minute")
	}
	h.Put("w", "k", schedules.Params{Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: "2s"}}}})
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "its schedule waits for tokens", func() bool { return h.Number(`SELECT count(*) FROM cohort WHERE due_at = 'infinity'`) == 1 })
	h.Quota("acme", 20_000)
	dispatchtest.Until(t, "it fires", func() bool { return h.Number(`SELECT count(*) FROM tick`) > 0 })
	if n := h.Number(`SELECT count(*) FROM allowance WHERE spent_rate = 20000 AND spent_to < clock_timestamp() + interval '1 second'`); n != 1 {
		t.Error("the debt does not count at the raised rate")
	}
	if n := h.Number(`SELECT count(*) FROM fair_turn WHERE due_at > clock_timestamp() + interval '5 seconds'`); n != 0 {
		t.Error("the next look at a tenant is more than 5 s ahead")
	}
}

func TestADebtOfAnyLengthStopsNoShard(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Quota("acme", 900_000)
	h.Put("w", "k", dispatchtest.Daily(0))
	h.Backdate(h.Tenant)
	shard := int16(h.Number(`SELECT shard FROM cohort`))
	swept := h.Neighbour(shard)
	h.Exec(`INSERT INTO allowance (tenant_id, spent_to, spent_rate) VALUES ($1, clock_timestamp() + interval '1000 years', 1)`, h.Tenant)
	h.SweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
}

func TestADebtOfATenantThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Quota("acme", 10)
	h.Dispatch.Owe(h.Tenant, 500)
	h.Dispatch.Owe(1_000_000, 500)
	if err := h.Dispatch.SettleDebts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM allowance WHERE tenant_id = $1 AND spent_to > clock_timestamp() + interval '5 seconds'`, h.Tenant); n != 1 {
		t.Error("the debt of the tenant beside it is not written")
	}
}
