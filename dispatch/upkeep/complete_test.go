package upkeep_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Upkeep completes the schedules that have no nominal time left, and no others.
func TestOnlySchedulesAtTheirEndAreCompleted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other := h.Quota("other", 1000)
	const past = `UPDATE member SET until_at = now() - interval '1 minute' WHERE schedule_id = (SELECT id FROM schedule WHERE key = $1)`
	const ofKey = ` WHERE id = (SELECT cohort_id FROM schedule WHERE key = $1)`
	for i, one := range []struct {
		key string
		set []string
	}{
		{"coming", nil},
		{"exhausted", []string{`UPDATE cohort SET next_at = NULL, due_at = NULL` + ofKey}},
		{"exhausted in a run", []string{`UPDATE cohort SET next_at = NULL, due_at = NULL, run_at = now(), run_from = now(), run_missed = 0, run_drop = false, at_phase = 0, at_id = 0` + ofKey}},
		{"past", []string{past}},
		{"past with a time to be swept", []string{past, `UPDATE cohort SET next_at = now() - interval '2 minutes'` + ofKey}},
		{"past in a run", []string{past, `UPDATE cohort SET run_at = now(), run_from = now(), run_missed = 0, run_drop = false, at_phase = 0, at_id = 0` + ofKey}},
	} {
		h.Put("w", one.key, schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{fmt.Sprintf("%d 0 1 1 *", i)}}})
		for _, sql := range one.set {
			h.Exec(sql, one.key)
		}
	}
	for key, over := range map[string]bool{"delayed": false, "delayed for the last time": true} {
		h.Put("w", key, dispatchtest.Delay("1h"))
		h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL, over = $2`+ofKey, key, over)
	}
	// An unopened chunk of a tick before the end: of the tenant in the shard it counts, elsewhere it does not.
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at)
		SELECT shard, owner, 0, 'small', now() - interval '1 hour', 1, 1, 1, '{}', '', now()
		FROM (SELECT DISTINCT shard, tenant_id FROM schedule) s
		CROSS JOIN LATERAL (VALUES (shard, $1), (shard, tenant_id), ((shard + 1)::smallint % 64, tenant_id)) v (place, owner)`, other)
	completed := func() []string {
		t.Helper()
		if err := h.Dispatch.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
		return texts(h, `SELECT key FROM schedule WHERE status = 'completed' AND cohort_id IS NULL`)
	}
	want := []string{"delayed for the last time", "exhausted"}
	if got := completed(); !slices.Equal(got, want) {
		t.Errorf("before the chunks are open %q are completed, want %q", got, want)
	}
	h.Exec(`DELETE FROM chunk WHERE tenant_id = $1 AND shard = (SELECT shard FROM schedule LIMIT 1)`, h.Tenant)
	want = append(want, "past")
	if got := completed(); !slices.Equal(got, want) {
		t.Errorf("%q are completed, want %q", got, want)
	}
	if n := h.Number(`SELECT count(*) FROM member m JOIN schedule s ON s.id = m.schedule_id WHERE s.status = 'completed'`); n != 0 {
		t.Errorf("%d completed schedules are members", n)
	}
	if n := h.Number(`SELECT count(*) FROM member m JOIN schedule s ON s.id = m.schedule_id AND s.cohort_id = m.cohort_id WHERE s.status = 'active'`); n != 5 {
		t.Errorf("%d active schedules are members, want 5", n)
	}
}

// Upkeep arms exactly the schedules with fixed_delay that nothing else arms.
func TestOnlyLostFixedDelaysAreArmed(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const out = `UPDATE schedule_state SET delay_at = date_trunc('second', now()) WHERE schedule_id = (SELECT id FROM schedule WHERE key = $1)`
	const tick = `
		INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
		SELECT tenant_id, schedule_id, delay_at, 0, 1, 0, delay_at, CASE WHEN $2 THEN now() END, 0, 1, CASE WHEN $2 THEN 2 ELSE 1 END, 0, 0, 0
		FROM schedule_state WHERE schedule_id = (SELECT id FROM schedule WHERE key = $1)`
	for _, key := range []string{"never out", "ended", "runs", "neither recorded nor swept", "the last was out", "armed"} {
		h.Put("w", key, dispatchtest.Delay("1h"))
		if key != "never out" && key != "armed" {
			h.Exec(out, key)
		}
	}
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL WHERE id <> (SELECT cohort_id FROM schedule WHERE key = 'armed')`)
	h.Exec(tick, "ended", true)
	h.Exec(tick, "runs", false)
	h.Exec(tick, "the last was out", true)
	h.Exec(`UPDATE schedule_state SET delay_left = 0 WHERE schedule_id = (SELECT id FROM schedule WHERE key = 'the last was out')`)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at)
		SELECT DISTINCT shard, tenant_id, 0, 'small', now(), 1::bigint, 1::bigint, 1, '{}'::text[], ''::bytea, now() FROM schedule`)
	armed := func() []string {
		t.Helper()
		if err := h.Dispatch.RearmLost(t.Context()); err != nil {
			t.Fatal(err)
		}
		return texts(h, `
			SELECT s.key
			FROM schedule s
			JOIN cohort c ON c.id = s.cohort_id
			JOIN schedule_state st ON st.schedule_id = s.id
			WHERE c.due_at = c.next_at AND st.delay_at IS NULL`)
	}
	want := []string{"armed", "ended", "never out"}
	if got := armed(); !slices.Equal(got, want) {
		t.Errorf("while a chunk may hold their ticks %q are armed, want %q", got, want)
	}
	h.Exec(`DELETE FROM chunk`)
	want = append(want, "neither recorded nor swept")
	slices.Sort(want)
	if got := armed(); !slices.Equal(got, want) {
		t.Errorf("%q are armed, want %q", got, want)
	}
}

// A schedule with fixed_delay whose spec cannot be computed any more is quarantined when its tick ends.
func TestAFixedDelayThatCannotBeComputedIsQuarantined(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.Delay("1h"))
	shard := int16(h.Number(`SELECT shard FROM schedule`))
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`)
	h.Exec(`UPDATE cohort_timing SET timing = '{"v": 1, "zone": "No/Where"}'`)
	h.Config.Timings = cohorts.NewTimings()
	h.Dispatch = h.Process()
	if err := h.Dispatch.RearmLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.SweepOnce(shard)
	if n := h.Number(`SELECT count(*) FROM schedule WHERE status = 'quarantined' AND status_note IS NOT NULL AND cohort_id IS NULL`); n != 1 {
		t.Errorf("got %q, want quarantined", texts(h, `SELECT status FROM schedule`))
	}
}

// A backfill leaves a nominal time to the sweep that has taken it, and one that the sweep is about to take. Each gets one tick.
func TestABackfillWaitsForWhatIsSweptAndNotOpen(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := dispatchtest.Hourly("allow_all")
	p.Policy.Missed = "all"
	h.Put("w", "k", p)
	shard := int16(h.Number(`SELECT shard FROM schedule`))
	// The schedule joined three hours ago, and nothing was swept since.
	h.Exec(`UPDATE member SET from_at = from_at - interval '3 hours'`)
	h.Exec(`UPDATE cohort SET next_at = next_at - interval '3 hours', due_at = now()`)
	const total = 6
	to := h.At(`SELECT now()`).UTC()
	from := to.Add(-total * time.Hour)
	ids, err := ident.New(make([]byte, ident.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	op, _ := ids.ParseOperation(h.Backfill(from, to, "allow_all").ID)
	step := func() {
		t.Helper()
		h.Exec(`UPDATE operation SET due_at = now()`)
		if err := h.Config.Operations.Run(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	const made, open = `SELECT count(*) FROM tick WHERE cause = 2`, `SELECT count(*) FROM operation WHERE ended_at IS NULL`
	step()
	before := h.Number(made)
	if pending := total - before; pending != 3 || h.Number(open) != 1 {
		t.Fatalf("%d of %d times are left to the sweep", pending, total)
	}
	for h.Number(`SELECT count(*) FROM cohort WHERE due_at <= now()`) > 0 {
		h.SweepOnce(shard)
	}
	step()
	if n := h.Number(made); n != before || h.Number(open) != 1 {
		t.Errorf("%d ticks are made of times that chunks hold, which nobody has opened", n-before)
	}
	h.OpenAll()
	step()
	if n := h.Number(made); n != before || h.Number(open) != 0 {
		t.Errorf("%d ticks are made of times that were handed out; %d operations go on", n-before, h.Number(open))
	}
	if n := h.Number(`SELECT count(DISTINCT nominal_at) FROM tick`); n != total || h.Number(`SELECT count(*) FROM tick`) != total {
		t.Errorf("%d of %d times have a tick", n, total)
	}
}

// A change that gives a schedule more ticks waits for the schedule's row while Complete finds the schedule at its end.
// The change commits first. It was acknowledged, so the schedule stays active and its next change succeeds.
func TestAScheduleThatGetsMoreTicksIsNotCompleted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	limited := func(ticks int) schedules.Params {
		p := dispatchtest.Rarely("skip")
		p.Spec.MaxTicks = &ticks
		return p
	}
	h.Put("w", "k", limited(1))
	h.Exec(`UPDATE member SET until_at = now() - interval '1 minute'`)
	waiting := func() int {
		return h.Number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	holder, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `SELECT FROM schedule FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	put, complete := make(chan error, 1), make(chan error, 1)
	go func() {
		_, _, err := h.Schedules.Put(postgres.ForTenant(t.Context(), int32(h.Tenant)), policy.Name{Tenant: h.Tenant, Workflow: "w", Key: "k"}, limited(5), "tester", version.Precondition{})
		put <- err
	}()
	dispatchtest.Until(t, "the change waits for the schedule's row", func() bool { return waiting() == 1 })
	go func() { complete <- h.Dispatch.Complete(t.Context()) }()
	dispatchtest.Until(t, "Complete waits for the change or has ended", func() bool { return waiting() == 2 || len(complete) == 1 })
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, done := range []chan error{put, complete} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.Schedules.Get(t.Context(), h.Tenant, "w", "k")
	if err != nil || s.Status != policy.Active || s.NextAt == nil {
		t.Errorf("got %s, next %v, %v", s.Status, s.NextAt, err)
	}
	if n := h.Number(`SELECT count(*) FROM schedule s JOIN member m ON m.cohort_id = s.cohort_id AND m.schedule_id = s.id WHERE m.until_at > $1`, time.Now()); n != 1 {
		t.Errorf("it is %d times a member of its cohort", n)
	}
	h.Put("w", "k", limited(7))
}
