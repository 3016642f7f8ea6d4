package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestAHerdIsHandedOutAtItsTenantsRate(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const perSecond, size, odd = 100, 500, 150
	h.Quota("acme", perSecond)
	h.Put("herd", "first", dispatchtest.Daily(0))
	h.Herd("herd", "first", size-odd-1)
	for i := range odd { // cohorts of one, over several shards
		h.Put("odd", fmt.Sprint(i), dispatchtest.Daily(1+i))
	}
	h.Backdate(h.Tenant)
	began := time.Now()
	h.Start(h.Dispatch)
	h.Start(h.Process()) // two processes keep to one rate
	dispatchtest.Until(t, "all have a tick", func() bool { return h.Number(`SELECT count(*) FROM tick`) >= size })
	if n := h.Number(`SELECT count(DISTINCT schedule_id) FROM tick WHERE state = 1`); n != size {
		t.Errorf("%d schedules have a tick that was handed out, want %d", n, size)
	}
	if n := h.Number(`SELECT count(*) FROM tick`); n != size {
		t.Errorf("%d ticks, want %d", n, size)
	}
	if n := h.Number(`SELECT sum(missed_count) FROM tick`); n != 0 {
		t.Errorf("%d times were missed", n)
	}
	// At the rate it takes 5 s, less what a burst allows; a loaded machine may take longer.
	if took := time.Since(began); took < 4300*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	if n := h.Number(`SELECT max(n) FROM (SELECT sum(ticks) AS n FROM chunk GROUP BY date_bin('1 second', swept_at, '2026-01-01')) s`); n > perSecond*5/2 {
		t.Errorf("%d ticks were swept in one second", n)
	}
	dispatchtest.Until(t, "nobody waits for a turn", func() bool {
		return h.Number(`SELECT (SELECT count(*) FROM fair_turn) + (SELECT count(*) FROM cohort WHERE throttled_at IS NOT NULL OR due_at = 'infinity')`) == 0
	})
	if n := h.Number(`SELECT count(*) FROM cohort WHERE next_at <> due_at OR next_at < now() OR run_at IS NOT NULL`); n != 0 {
		t.Errorf("%d cohorts are not at their next time", n)
	}
}

func TestAQuotaThatIsRaisedCountsForWhatWaits(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 3000
	h.Quota("acme", 1)
	h.Put("herd", "first", dispatchtest.Daily(0))
	h.Herd("herd", "first", size-1)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "the first are handed out", func() bool { return h.Number(`SELECT count(*) FROM tick`) > 2 })
	if n := h.Number(`SELECT count(*) FROM tick`); n > 50 {
		t.Errorf("%d ticks at one a second", n)
	}
	h.Quota("acme", 1_000_000)
	// At the old rate it would take most of an hour, for which nobody waits here.
	dispatchtest.Until(t, "all have a tick", func() bool { return h.Number(`SELECT count(*) FROM tick`) >= size })
}

func TestAGiantDoesNotHoldUpTheSmall(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Quota("acme", 1_000_000)
	h.Put("giant", "first", dispatchtest.Daily(0))
	h.Herd("giant", "first", 40_000)
	h.Backdate(h.Tenant)
	shard := int16(h.Number(`SELECT shard FROM cohort`))
	// The small one's cohort comes due after the giant's, in the same shard.
	giant := h.Tenant
	h.Tenant = h.Quota("small", 100)
	h.Exec(`UPDATE tenant SET shards = 64 WHERE id = $1`, h.Tenant)
	for i := 0; h.Number(`SELECT count(*) FROM cohort WHERE shard = $1 AND tenant_id = $2`, shard, h.Tenant) == 0; i++ {
		h.Put("small", fmt.Sprint(i), dispatchtest.Daily(0))
	}
	h.Backdate(h.Tenant)
	h.Exec(`UPDATE cohort SET due_at = due_at + interval '1 second' WHERE tenant_id = $1`, h.Tenant)
	for range 2 {
		if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.Number(`SELECT count(*) FROM chunk WHERE tenant_id = $1 AND shard = $2`, h.Tenant, shard); n == 0 {
		t.Error("the small one waits after two sweeps")
	}
	swept := h.Number(`SELECT sum(ticks) FROM chunk WHERE tenant_id = $1`, giant)
	if swept >= 40_000 {
		t.Errorf("two sweeps took %d of the giant", swept)
	}
	for more := true; more; {
		var err error
		if more, err = h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.Number(`SELECT sum(ticks) FROM chunk WHERE tenant_id = $1`, giant); n != 40_001 {
		t.Errorf("%d of the giant were swept", n)
	}
}

func TestAHaltLosesNothing(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	admin := s.Operator()
	h.Put("last", "k", dispatchtest.Daily(0))
	h.Put("none", "k", schedules.Params{Spec: dispatchtest.Daily(0).Spec, Policy: &policy.Policy{Missed: "none", MaxLateness: "1w"}})
	f := dispatchtest.Get[history.Firing](admin, 200, "POST", "/v1/admin/halt", `{"note": "a test"}`)
	h.Start(h.Dispatch)
	f = dispatchtest.Get[history.Firing](admin, 200, "POST", "/v1/admin/halt", "")
	if f.HaltedAt == nil || f.Note == nil || *f.Note != "a test" {
		t.Errorf("got %+v", f)
	}
	h.Backdate(h.Tenant)
	dispatchtest.Until(t, "both wait", func() bool {
		return h.Number(`SELECT count(*) FROM cohort WHERE throttled_at IS NOT NULL AND due_at = 'infinity'`) == 2
	})
	if n := h.Number(`SELECT count(*) FROM tick`); n != 0 {
		t.Errorf("%d ticks while halted", n)
	}
	stored, err := h.Schedules.Get(t.Context(), h.Tenant, "last", "k")
	if err != nil {
		t.Fatal(err)
	}
	if next := stored.NextAt; next == nil || next.After(time.Now()) {
		t.Errorf("next_at is %v while halted", next)
	}
	_, _, err = h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "last", "k", control.TriggerParams{}, once.Request{})
	if err != nil {
		t.Fatalf("trigger: %v", err)
	}
	if tick := h.History("last", "k")[0]; tick.State != "skipped" || tick.Reason != "paused" {
		t.Errorf("got %+v", tick)
	}
	f = dispatchtest.Get[history.Firing](admin, 200, "POST", "/v1/admin/continue", "")
	if f.HaltedAt != nil {
		t.Errorf("got %+v", f)
	}
	dispatchtest.Until(t, "what is past follows missed", func() bool {
		return h.Number(`SELECT count(*) FROM tick WHERE seq = 0 AND state = 1`) == 1 && h.Number(`SELECT count(*) FROM tick WHERE seq = 0 AND state = 5`) == 1
	})
	if tick := h.History("none", "k")[0]; tick.State != "skipped" || tick.Reason != "missed" {
		t.Errorf("got %+v", tick)
	}
	if n := h.Number(`SELECT count(*) FROM fair_turn`); n != 0 {
		t.Errorf("%d turns are left", n)
	}
	dispatchtest.Get[history.Firing](admin, 200, "POST", "/v1/admin/continue", "")
	if a := admin.Do("POST", "/v1/admin/halt", fmt.Sprintf(`{"note": "%01001d"}`, 0)); a.Status != 422 {
		t.Errorf("a long note: got %d", a.Status)
	}
	for _, path := range []string{"/v1/admin/halt", "/v1/admin/continue"} {
		if a := s.As("acme", tenants.SchedulesWrite).Do("POST", path, ""); a.Status != 403 {
			t.Errorf("%s by one who is not the operator: got %d", path, a.Status)
		}
	}
}

func TestASuspendedTenantGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.Daily(0))
	h.Exec(`UPDATE tenant SET status = 'suspended'`)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "it waits", func() bool { return h.Number(`SELECT count(*) FROM cohort WHERE throttled_at IS NOT NULL`) == 1 })
	h.Exec(`UPDATE tenant SET status = 'active'`)
	dispatchtest.Until(t, "it fires", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == 1 })
}

func TestWhoComesBehindAFullBatchOfAnothersIsLookedFor(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Quota("acme", 1_000_000)
	h.Put("odd", "first", dispatchtest.Daily(0))
	h.Backdate(h.Tenant)
	shard := int16(h.Number(`SELECT shard FROM cohort`))
	// More cohorts of one tenant than a sweep takes, all due before the others'.
	const odd = 3000
	h.Exec(`
		WITH model AS (
			SELECT s.*, m.from_at AS joined
			FROM schedule s JOIN member m ON m.schedule_id = s.id
		), timed AS (
			INSERT INTO cohort_timing (shard, tenant_id, workflow, hash, timing, missed)
			SELECT shard, tenant_id, 'odd ' || i, hash, timing, missed
			FROM cohort_timing, generate_series(1, $1::int) i
			RETURNING *
		), dated AS (
			INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, next_at, due_at, tzdata)
			SELECT t.id, t.shard, t.tenant_id, t.workflow, t.hash, t.missed, c.next_at, c.due_at, c.tzdata
			FROM timed t, cohort c
		), made AS (
			INSERT INTO schedule (tenant_id, workflow, key, shard, status, spec, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by)
			SELECT m.tenant_id, t.workflow, m.key, m.shard, m.status, m.spec, m.anchor_at, t.id, m.tzdata, m.created_at, m.updated_at, m.updated_by
			FROM model m, timed t
			RETURNING tenant_id, id, cohort_id
		), states AS (
			INSERT INTO schedule_state (tenant_id, schedule_id) SELECT tenant_id, id FROM made
		)
		INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at)
		SELECT made.cohort_id, 0, made.id, made.tenant_id, model.joined FROM made, model`, odd)
	giant := h.Tenant
	small := map[tenants.ID]int{h.Quota("one", 100): 1, h.Quota("two", 100): 2}
	for tenant, n := range small {
		h.Tenant = tenant
		h.Exec(`UPDATE tenant SET shards = 64 WHERE id = $1`, tenant)
		for i := 0; h.Number(`SELECT count(*) FROM cohort WHERE shard = $1 AND tenant_id = $2`, shard, tenant) < n; i++ {
			h.Put("small", fmt.Sprint(i), dispatchtest.Daily(1+i))
		}
		h.Backdate(tenant)
		h.Exec(`UPDATE cohort SET due_at = due_at + interval '5 minutes' WHERE tenant_id = $1`, tenant)
	}
	swept := func(tenant tenants.ID) int {
		return h.Number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE tenant_id = $1 AND shard = $2`, tenant, shard)
	}
	more, err := h.Dispatch.SweepOnce(t.Context(), shard)
	if err != nil || !more {
		t.Fatalf("one sweep: %t, %v", more, err)
	}
	for tenant, n := range small {
		if got := swept(tenant); got != n {
			t.Errorf("of %d schedules behind the giant's %d are swept at once", n, got)
		}
	}
	if got := swept(giant); got == 0 || got > odd {
		t.Errorf("%d of the giant's are swept beside them", got)
	}
	for more {
		if more, err = h.Dispatch.SweepOnce(t.Context(), shard); err != nil {
			t.Fatal(err)
		}
	}
	small[giant] = odd + 1
	for tenant, n := range small {
		if got := swept(tenant); got != n {
			t.Errorf("%d are swept, want %d", got, n)
		}
	}
	if n := h.Number(`SELECT count(*) FROM chunk WHERE opened_at IS NULL AND tenant_id = $1`, giant); n >= odd/100 {
		t.Errorf("%d cohorts of one make %d chunks", odd, n)
	}
}
