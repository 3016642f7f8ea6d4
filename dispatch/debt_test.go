package dispatch_test

import (
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
)

// A tenant that owes days at one tick a second pays at its raised rate, and fires at once.
func TestADebtIsPaidAtTheRaisedRate(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.quota("acme", 1)
	h.dispatch.Owe(h.tenant, 200_000)
	if err := h.dispatch.SettleDebts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.number(`SELECT count(*) FROM allowance WHERE spent_to BETWEEN clock_timestamp() + interval '1 second' AND clock_timestamp() + interval '1 minute'`); n != 1 {
		t.Error("the tenant does not owe between a second and a minute")
	}
	h.put("w", "k", schedules.Params{Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: "2s"}}}})
	h.start(h.dispatch)
	until(t, "its schedule waits for tokens", func() bool { return h.number(`SELECT count(*) FROM cohort WHERE due_at = 'infinity'`) == 1 })
	h.quota("acme", 20_000)
	until(t, "it fires", func() bool { return h.number(`SELECT count(*) FROM tick`) > 0 })
	if n := h.number(`SELECT count(*) FROM allowance WHERE spent_rate = 20000 AND spent_to < clock_timestamp() + interval '1 second'`); n != 1 {
		t.Error("the debt does not count at the raised rate")
	}
	if n := h.number(`SELECT count(*) FROM turn WHERE due_at > clock_timestamp() + interval '5 seconds'`); n != 0 {
		t.Error("the next look at a tenant is more than 5 s ahead")
	}
}

func TestADebtOfAnyLengthStopsNoShard(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.quota("acme", 900_000)
	h.put("w", "k", daily(0))
	h.backdate(h.tenant)
	shard := int16(h.number(`SELECT shard FROM cohort`))
	swept := h.neighbour(shard)
	h.exec(`INSERT INTO allowance (tenant_id, spent_to, spent_rate) VALUES ($1, clock_timestamp() + interval '1000 years', 1)`, h.tenant)
	h.sweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
}

func TestADebtOfATenantThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.quota("acme", 10)
	h.dispatch.Owe(h.tenant, 100)
	h.dispatch.Owe(1_000_000, 100)
	if err := h.dispatch.SettleDebts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.number(`SELECT count(*) FROM allowance WHERE tenant_id = $1 AND spent_to > clock_timestamp() + interval '5 seconds'`, h.tenant); n != 1 {
		t.Error("the debt of the tenant beside it is not written")
	}
}
