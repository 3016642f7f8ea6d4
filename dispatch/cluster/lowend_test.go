package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/tenants"
)

// Index entries of ready ticks that were leased cannot be removed while an old snapshot is open. A look for ready ticks does not
// read them again each time. A queue from which no worker leases does not change this.
func TestLooksForReadyTicksDoNotReadEarlierOnesUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.ReadyHerd("w", 1)
	h.Exec(`CREATE TABLE kept AS SELECT * FROM ready`)
	h.Exec(`DELETE FROM ready`)
	// After an ANALYZE of these few rows the planner may read the primary key and sort, until the next ANALYZE: see docs/decisions/scans.md.
	h.Exec(`ALTER TABLE ready SET (autovacuum_enabled = off)`)
	r := &dispatchtest.Recorder{Ran: map[string][]any{}}
	h.Traced(r)
	h.Config.API = h.Config.Pool
	d := h.Process()
	h.OldSnapshot()
	const put = `
		INSERT INTO ready (tenant_id, workflow, queue, priority, ticks, taken, items)
		SELECT tenant_id, workflow, $1, priority, ticks, taken, items FROM kept CROSS JOIN generate_series(1, $2)`
	h.Exec(put, "left", 3)
	lease := func() {
		t.Helper()
		for range 2 {
			if err := d.MeasureHorizon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Leases.Lease(t.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{"w"}, Queues: []string{"q", "default"}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := d.WakePolled(t.Context(), h.Tenant, "w"); err != nil {
			t.Fatal(err)
		}
	}
	words := []string{"max(r.id), count(*)", "r.ticks, r.taken", "SELECT p.tenant, p.workflow"}
	rounds := func(n int) {
		t.Helper()
		for range n {
			h.Exec(put, "q", 200)
			h.Exec(`DELETE FROM ready WHERE queue = 'q'`)
			lease()
		}
		last := int64(h.Number(`SELECT max(last_value) FROM ready_id_seq`))
		dispatchtest.Until(t, "looks begin after the last row", func() bool { // another test's transaction may hold the horizon back
			lease()
			return r.LookedFrom(words[0], 7, last)
		})
		h.Exec(put, "q", 1)
		lease() // of a tick
		h.Exec(`DELETE FROM ready WHERE queue = 'q'`)
	}
	rounds(2)
	before := h.Entries(r, words...)
	rounds(10)
	dispatchtest.Grown(t, before, h.Entries(r, words...))
	for i, arg := range []int{7, 4} {
		r.FromLowEnd(words[i], arg)
	}
	for sql, n := range h.Entries(r, words[:2]...) {
		if n < 1000 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// A row of ready whose transaction ends long after others have come and gone is found, in a queue that nobody knew.
func TestAReadyTickThatIsCommittedLateIsLeased(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.ReadyHerd("w", 1)
	h.Exec(`CREATE TABLE kept AS SELECT * FROM ready`)
	h.Exec(`DELETE FROM ready`)
	d, _ := h.Recording()
	put := func(queue string) string {
		return fmt.Sprintf(`
			INSERT INTO ready (tenant_id, workflow, queue, priority, ticks, taken, items)
			SELECT tenant_id, workflow, '%s', priority, ticks, taken, items FROM kept WHERE pg_current_xact_id() IS NOT NULL`, queue)
	}
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), put("late")); err != nil {
		t.Fatal(err)
	}
	lease := func() string {
		t.Helper()
		for range 3 {
			if err := d.MeasureHorizon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		body, err := d.Leases.Lease(t.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{"w"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for range 5 {
		h.Exec(put("other"))
		h.Exec(`DELETE FROM ready`)
		if body := lease(); strings.Contains(body, "tick_id") {
			t.Fatalf("leased %s", body)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if body := lease(); !strings.Contains(body, "tick_id") {
		t.Errorf("leased %s", body)
	}
}

// Each heartbeat of a process leaves a dead row while an old snapshot is open. A look for processes does not read these rows.
func TestLooksForProcessesDoNotReadEarlierBeatsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	d, r := h.Recording()
	h.OldSnapshot()
	run := func() {
		t.Helper()
		measured := errors.Join(d.MeasureHorizon(t.Context()), d.MeasureHorizon(t.Context()))
		dispatchtest.Until(t, "it has a heartbeat", func() bool {
			h.Exec(`UPDATE process SET beat_at = clock_timestamp()`) // nobody hears of a process that is silent for too long
			err := d.BeatOnce(t.Context())
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			return err == nil
		})
		for _, err := range []error{measured, d.TakeOwned(t.Context()), d.ClearProcesses(t.Context())} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	beats := func(n int) {
		t.Helper()
		h.Exec(fmt.Sprintf(`DO $$ BEGIN
			FOR i IN 1..%d LOOP UPDATE process SET beat_at = clock_timestamp() - interval '10 minutes'; END LOOP;
			UPDATE process SET beat_at = clock_timestamp();
		END $$`, n))
		beaten := time.Now()
		dispatchtest.Until(t, "looks begin after the beats", func() bool { // another test's transaction may hold the horizon back
			run()
			return r.Began("FROM process WHERE beat_at >=", 0).After(beaten.Add(-6 * time.Second))
		})
		run()
	}
	words := []string{"SET beat_at = clock_timestamp()\n", "SELECT id, sweeps, dispatches", "beat_at <= (SELECT", "DELETE FROM process", "lead(id"}
	const all = `SELECT count(*) FROM process`
	beats(100)
	before := h.Pages(r, all, words...)
	beats(3000)
	after := h.Pages(r, all, words...)
	for sql, n := range before {
		t.Logf("%d pages read, then %d: %.60s", n, after[sql], sql)
		if sql != all && after[sql] > 2*n+20 {
			t.Errorf("%d pages are read, and %d at the start:\n%s", after[sql], n, sql)
		}
	}
	if after[all] < before[all]+30 {
		t.Errorf("%d pages are read of all, so that the test shows nothing", after[all])
	}
}

// A changed due time of the future leaves a dead index entry with a time ahead of the clock. A look for due cohorts does not read it.
func TestLooksForDueCohortsDoNotReadChangedTimesAheadUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	for i := range 20 {
		h.Put("w", fmt.Sprintf("k%d", i), schedules.Params{Spec: dispatchtest.At(7200 + i)})
	}
	d, r := h.Recording()
	h.OldSnapshot()
	const word = "c.due_at, h.due_at, t.due_at, clock"
	entries := func(changes int) (n int) {
		t.Helper()
		h.Exec(fmt.Sprintf(`DO $$ BEGIN
			FOR i IN 1..%d LOOP UPDATE cohort SET due_at = clock_timestamp() + i * interval '1 minute'; END LOOP;
			UPDATE cohort SET due_at = clock_timestamp() + interval '10 days';
		END $$`, changes))
		if _, err := d.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n = range h.Entries(r, word) {
		}
		return n
	}
	if before, after := entries(1), entries(100); after > 2*before+100 {
		t.Errorf("%d index entries are read, and %d at the start", after, before)
	}
}

// Index entries of notices and events that were told cannot be removed while an old snapshot is open. A look for due ones does not
// read them again.
func TestLooksForNoticesAndEventsDoNotReadEarlierOnesUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	d, r := h.Recording()
	h.OldSnapshot()
	h.Exec(`INSERT INTO notice (tenant_id, event, cause, n, first_at, last_at) SELECT $1, 'tick.failed', n::text, 0, now(), now() FROM generate_series(1, 100) n`, h.Tenant)
	h.Exec(`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at) SELECT $1, 'e', n::text, 'tick.failed', '', 1, now(), now() FROM generate_series(1, 100) n`, h.Tenant)
	words := []string{"FROM notice WHERE next_at <=", "FROM event WHERE due_at <=", "o.next_at BETWEEN", "o.due_at BETWEEN"}
	look := func() {
		t.Helper()
		_, told := d.AnyNotice(t.Context())
		_, claimed := d.ClaimEvents(t.Context(), 1)
		for _, err := range []error{d.MeasureHorizon(t.Context()), told, claimed} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	rounds := func(n int) {
		t.Helper()
		for range n {
			h.Exec(`UPDATE notice SET next_at = clock_timestamp()`)
			h.Exec(`UPDATE event SET due_at = clock_timestamp()`)
			look()
		}
		h.Exec(`UPDATE notice SET next_at = clock_timestamp() + interval '1 hour'`)
		h.Exec(`UPDATE event SET due_at = clock_timestamp() + interval '1 hour'`)
		last := time.Now()
		dispatchtest.Until(t, "looks begin after the last one", func() bool { // another test's transaction may hold the horizon back
			look()
			return r.Began(words[0], 0).After(last) && r.Began(words[1], 0).After(last)
		})
		h.Exec(`UPDATE notice SET next_at = clock_timestamp() WHERE cause = '1'`)
		h.Exec(`UPDATE event SET due_at = clock_timestamp() WHERE id = '1'`)
		look()
		if err := d.Notice(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.Exec(`INSERT INTO notice (tenant_id, event, cause, n, first_at, last_at) VALUES ($1, 'tick.failed', '1', 0, now(), now()) ON CONFLICT DO NOTHING`, h.Tenant)
	}
	rounds(2)
	before := h.Entries(r, words...)
	rounds(20)
	dispatchtest.Grown(t, before, h.Entries(r, words...))
	for i := range words[:2] {
		r.FromLowEnd(words[i], 0)
	}
	for sql, n := range h.Entries(r, words[:2]...) {
		if n < 1000 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// Index entries of cohorts that waited in line cannot be removed while an old snapshot is open. A turn does not read them again.
func TestTurnsDoNotReadEarlierWaitsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	for i := range 20 {
		h.Put("w", fmt.Sprintf("k%d", i), schedules.Params{Spec: dispatchtest.At(7200 + i)})
	}
	d, r := h.Recording()
	h.OldSnapshot()
	const word = "c.throttled_at >= $4"
	rounds := func(n int) {
		t.Helper()
		for range n {
			h.Exec(`
				UPDATE cohort SET shard = shard, next_at = date_trunc('second', clock_timestamp()) - interval '1 s', due_at = 'infinity', throttled_at = clock_timestamp()`)
			h.Exec(`INSERT INTO fair_turn (shard, tenant_id, due_at) SELECT shard, tenant_id, clock_timestamp() FROM (SELECT DISTINCT shard, tenant_id FROM cohort) c ON CONFLICT (shard, tenant_id) DO UPDATE SET due_at = excluded.due_at`)
			dispatchtest.Until(t, "none waits", func() bool {
				for shard := range int16(cohorts.Shards) {
					if _, err := d.SweepOnce(t.Context(), shard); err != nil {
						t.Fatal(err)
					}
				}
				return h.Number(`SELECT count(*) FROM cohort WHERE throttled_at IS NOT NULL`) == 0
			})
		}
	}
	// reading returns how much a look reads after n more rounds, once it begins behind them. Further rounds raise a floor that is too low.
	reading := func(n int) map[string]int {
		rounds(n)
		var past time.Time
		if err := h.Pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&past); err != nil {
			t.Fatal(err)
		}
		dispatchtest.Until(t, "a look begins behind the rounds", func() bool {
			rounds(1)
			return r.Began(word, 3).After(past)
		})
		return h.Entries(r, word)
	}
	before := reading(3)
	dispatchtest.Grown(t, before, reading(30))
	r.FromLowEnd(word, 3)
	for sql, n := range h.Entries(r, word) {
		if n < 400 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// A lane with a long backlog hides no chunk of another lane that lost its job.
func TestABacklogOfALaneHidesNoChunkOfAnother(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const put = `
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT 0, $1, 0, $2, now(), n, n, 1, '\xff', now() - interval '1 minute', '{}' FROM generate_series(1, $3) n`
	h.Exec(put, h.Tenant, "catchup", 2500)
	h.Exec(`INSERT INTO river_job (state, queue, kind, args, max_attempts) SELECT 'available', 'catchup', 'open', json_build_object('chunk', min(id)), 25 FROM chunk`)
	h.Exec(put, h.Tenant, "small", 1) // it cannot be read
	hidden := h.Number(`SELECT max(id) FROM chunk`)
	var err error
	dispatchtest.Until(t, "a run has tried to open a chunk", func() bool { // a run whose time is over continues in the next one
		err = h.Dispatch.OpenStale(t.Context())
		return err != nil
	})
	if !strings.Contains(err.Error(), fmt.Sprintf("open chunk %d", hidden)) {
		t.Errorf("the chunk %d is not opened: %v", hidden, err)
	}
}

// Due events of a suspended tenant are put off, and those of others are claimed.
func TestEventsOfASuspendedTenantArePutOff(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`INSERT INTO tenant (name, quotas, status) VALUES ('suspended', '{}', 'suspended')`)
	const put = `INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at) SELECT t.id, 'e', n::text, 'tick.failed', '', 1, now(), now() FROM tenant t, generate_series(1, 120) n WHERE t.name `
	h.Exec(put + `= 'suspended'`)
	h.Exec(put + `<> 'suspended'`)
	if n, err := h.Dispatch.ClaimEvents(t.Context(), 5); n != 1 || err != nil {
		t.Errorf("%d are claimed: %v", n, err)
	}
	if n := h.Number(`SELECT count(*) FROM event e JOIN tenant t ON t.id = e.tenant_id WHERE t.status = 'suspended' AND e.due_at < clock_timestamp() + interval '10 seconds'`); n != 0 {
		t.Errorf("%d of the suspended tenant are due", n)
	}
	if n := h.Number(`SELECT count(*) FROM event e JOIN tenant t ON t.id = e.tenant_id WHERE t.status <> 'suspended' AND e.due_at < clock_timestamp()`); n != 119 {
		t.Errorf("%d of the other are due, want 119", n)
	}
}

// Index entries of chunks that were opened cannot be removed while an old snapshot is open. An overview does not read them.
func TestOverviewsDoNotReadOpenedChunksUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	d, r := h.Recording()
	h.OldSnapshot()
	o := &history.Overviews{
		DB: h.Config.Pool, Unopened: d.Unopened, Ahead: func(context.Context, tenants.ID) *forecast.Ahead { return nil },
		Uses: func(context.Context, tenants.ID) (map[string]tenants.Use, error) { return nil, nil },
	}
	const word = "SELECT c.ticks, c.nominal_at"
	rounds := func(n int) {
		t.Helper()
		for range n {
			h.ChunksGo(1, 200)
		}
		last := int64(h.Number(`SELECT max(id) FROM chunk`))
		dispatchtest.Until(t, "an overview begins after the last chunk", func() bool { // another test's transaction may hold the horizon back
			_, err := o.Of(t.Context(), h.Tenant)
			for _, err := range []error{d.MeasureHorizon(t.Context()), d.CountUnopened(t.Context()), err} {
				if err != nil {
					t.Fatal(err)
				}
			}
			return r.BeganAt(word, 1) > last
		})
	}
	rounds(2)
	before := h.Entries(r, word)
	rounds(10)
	dispatchtest.Grown(t, before, h.Entries(r, word))
	r.FromLowEnd(word, 1)
	for sql, n := range h.Entries(r, word) {
		if n < 1000 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}
