package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// rated gives a workflow a rate; 0: none.
func rated(h *dispatchtest.Carillon, workflow string, perSecond int32) {
	h.T.Helper()
	p := schedules.WorkflowParams{}
	if perSecond > 0 {
		p.Rate = &policy.Rate{PerSecond: perSecond}
	}
	if _, _, err := h.Schedules.PutWorkflow(h.T.Context(), h.Tenant, workflow, p); err != nil {
		h.T.Fatal(err)
	}
}

// Two processes keep to the rate of a workflow, the earliest nominal time comes first, and another workflow of the tenant does not wait.
func TestAHerdIsHandedOutAtTheRateOfItsWorkflow(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const perSecond, size, odd = 100, 500, 150
	rated(h, "herd", perSecond)
	h.Put("herd", "first", dispatchtest.Daily(0))
	h.Herd("herd", "first", size-odd-1)
	for i := range odd { // cohorts of one, over several shards, with later nominal times
		h.Put("herd", fmt.Sprint(i), dispatchtest.Daily(1+i))
	}
	h.Put("free", "first", dispatchtest.Daily(0))
	h.Herd("free", "first", 200)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	h.Start(h.Process())
	dispatchtest.Until(t, "all have a tick", func() bool { return h.Number(`SELECT count(*) FROM tick`) >= size+201 })
	if n := h.Number(`SELECT count(DISTINCT schedule_id) FROM tick WHERE state = 1 AND missed_count = 0`); n != size+201 {
		t.Errorf("%d schedules have a tick that was handed out, want %d", n, size+201)
	}
	// The sweep gives each chunk its turn. Chunks are then opened side by side, so that fired_at of two of them may be late or in another order.
	if n := h.Number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE workflows = '{herd}'`); n != size {
		t.Errorf("%d ticks were swept, want %d", n, size)
	}
	// At the rate it takes 5 s. What the bucket holds saves 0.1 s of it, and 0.1 s more if the first turn is late.
	if ms := h.Number(`SELECT (extract(epoch FROM max(swept_at) - min(swept_at)) * 1000)::int FROM chunk WHERE workflows = '{herd}'`); ms < 4700 {
		t.Errorf("it took %d ms", ms)
	}
	if n := h.Number(`SELECT max(n) FROM (SELECT (SELECT sum(ticks) FROM chunk b WHERE b.workflows = '{herd}' AND b.swept_at >= a.swept_at AND b.swept_at < a.swept_at + interval '2 seconds') AS n FROM chunk a) w`); n > 2*perSecond+perSecond/10+perSecond/5 {
		t.Errorf("%d ticks within two seconds", n)
	}
	if n := h.Number(`SELECT COALESCE(sum(ticks), 0) FROM (SELECT ticks, swept_at, max(swept_at) OVER (ORDER BY nominal_at RANGE BETWEEN UNBOUNDED PRECEDING AND interval '10 seconds' PRECEDING) AS earlier FROM chunk WHERE workflows = '{herd}') o WHERE swept_at < earlier`); n > 0 {
		t.Errorf("%d ticks were swept before ticks that were due ten seconds earlier", n)
	}
	last := h.Number(`SELECT (extract(epoch FROM max(t.fired_at) - min(t.fired_at)) * 1000)::int FROM tick t JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id WHERE s.workflow = 'free'`)
	if last > 3000 {
		t.Errorf("the workflow without a rate took %d ms", last)
	}
	dispatchtest.Until(t, "nothing waits", func() bool {
		return h.Number(`SELECT (SELECT count(*) FROM rate_turn) + (SELECT count(*) FROM cohort WHERE paced OR throttled_at IS NOT NULL OR due_at = 'infinity')`) == 0
	})
	if n := h.Number(`SELECT count(*) FROM cohort WHERE next_at <> due_at OR next_at < now() OR run_at IS NOT NULL`); n != 0 {
		t.Errorf("%d cohorts are not at their next time", n)
	}
}

// A rate that is raised or taken away counts for what waits.
func TestARateThatIsChangedCountsForWhatWaits(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 2000
	rated(h, "herd", 1)
	h.Put("herd", "first", dispatchtest.Daily(0))
	h.Herd("herd", "first", size-1)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "the first are handed out", func() bool { return h.Number(`SELECT count(*) FROM tick`) > 1 })
	if n := h.Number(`SELECT count(*) FROM tick`); n > 30 {
		t.Errorf("%d ticks at one a second", n)
	}
	rated(h, "herd", 1000)
	dispatchtest.Until(t, "half have a tick", func() bool { return h.Number(`SELECT count(*) FROM tick`) >= size/2 })
	rated(h, "herd", 0)
	dispatchtest.Until(t, "all have a tick", func() bool { return h.Number(`SELECT count(*) FROM tick`) >= size })
	dispatchtest.Until(t, "nothing waits", func() bool {
		return h.Number(`SELECT (SELECT count(*) FROM rate_turn) + (SELECT count(*) FROM cohort WHERE paced)`) == 0
	})
	if n := h.Number(`SELECT count(*) FROM tick`); n != size {
		t.Errorf("%d ticks", n)
	}
}

// What waits for a rate stops with its workflow and with its tenant, and goes on with them.
func TestAHoldAndAHaltStopWhatWaitsForARate(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 2000 // it would take minutes: some are left at the hold and at the halt, though both may be late
	rated(h, "herd", 10)
	h.Put("herd", "first", dispatchtest.Daily(0))
	h.Herd("herd", "first", size-1)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	ticks := func() int { return h.Number(`SELECT count(*) FROM tick`) }
	dispatchtest.Until(t, "some are handed out", func() bool { return ticks() > 30 })
	if _, err := h.Schedules.Hold(t.Context(), h.Tenant, "herd", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "all that waits is set aside", func() bool { return h.Number(`SELECT count(*) FROM cohort WHERE held`) == 1 })
	dispatchtest.Until(t, "all is opened", func() bool { return len(h.Chunks()) == 0 })
	before := ticks()
	if before >= size {
		t.Fatal("nothing is left to hold")
	}
	if _, err := h.Schedules.Release(t.Context(), h.Tenant, "herd", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "it goes on", func() bool { return ticks() > before+10 })
	op := h.Open(h.Dispatch).Operator()
	op.Do("POST", "/v1/admin/halt", `{"note": "stop"}`)
	dispatchtest.Until(t, "all is opened", func() bool { return len(h.Chunks()) == 0 })
	if ticks() >= size {
		t.Fatal("nothing is left to halt")
	}
	op.Do("POST", "/v1/admin/continue", `{}`)
	rated(h, "herd", 0)
	dispatchtest.Until(t, "all have a tick", func() bool { return ticks() >= size })
	if n := h.Number(`SELECT count(DISTINCT schedule_id) FROM tick`); n != size || ticks() != size {
		t.Errorf("%d schedules have %d ticks", n, ticks())
	}
}

// A manual tick does not wait for the rate, and is charged to it.
func TestATriggerIsNeverDelayedByARate(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	rated(h, "w", 1)
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	h.Put("w", "timed", dispatchtest.Daily(0))
	h.Start(h.Dispatch)
	const n = 5
	for range n {
		if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", "k", control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for leased := 0; leased < n; {
		leased += len(h.Lease("w", n))
	}
	if took := time.Since(began); took > 3*time.Second { // at the rate it takes 4 s
		t.Errorf("%d manual ticks took %s", n, took)
	}
	dispatchtest.Until(t, "the process has charged them", func() bool {
		return h.Number(`SELECT count(*) FROM rate_allowance WHERE kind = 'workflow' AND name = 'w' AND tokens = -$1::int`, n) == 1
	})
	h.Backdate(h.Tenant)
	h.Lease("w", 1)
	if ms := h.Number(`SELECT (extract(epoch FROM max(fired_at) FILTER (WHERE cause <> 1) - max(fired_at) FILTER (WHERE cause = 1)) * 1000)::int FROM tick`); ms < 1000*(n-2) {
		t.Errorf("the next timed tick came %d ms after %d manual ones", ms, n)
	}
}
