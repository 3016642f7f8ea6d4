package dispatch_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// setEndpoint has the endpoint of a catcher be in a state.
func (h *house) setEndpoint(name, url, state string, batch int16) {
	h.t.Helper()
	if _, _, err := h.dispatch.Pusher.PutEndpoint(h.t.Context(), h.tenant, name, push.EndpointParams{URL: url + "/hook", State: state, Batch: &batch}); err != nil {
		h.t.Fatal(err)
	}
}

// openAll opens all chunks that are not open, as no process does it.
func (h *house) openAll() {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `SELECT id FROM chunk WHERE opened_at IS NULL ORDER BY id`) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		h.t.Fatal(err)
	}
	for _, id := range ids {
		if err := h.dispatch.Open(h.t.Context(), id); err != nil {
			h.t.Fatal(err)
		}
	}
}

// round does once what processes do all the time: it wakes, keeps house, and sweeps all shards.
func (h *house) round() {
	h.t.Helper()
	ctx := h.t.Context()
	for _, do := range []func(context.Context) error{h.dispatch.Wake, h.dispatch.WakeForsaken} {
		if err := do(ctx); err != nil {
			h.t.Fatal(err)
		}
	}
	for shard := range int16(cohorts.Shards) {
		if _, err := h.dispatch.SweepOnce(ctx, shard); err != nil {
			h.t.Fatal(err)
		}
	}
}

// parkedHerd has ticks of as many schedules be parked for an endpoint that is held.
func (h *house) parkedHerd(name string, size int) *catcher {
	h.t.Helper()
	c := h.catcher(name, 500, nil)
	h.setEndpoint(name, c.URL, "held", 500)
	h.sweptHerd(name, size)
	until(h.t, "all are open", func() bool {
		h.round()
		h.openAll()
		return h.number(`SELECT count(*) FROM tick WHERE state = 1`) == size
	})
	h.wantParked(name, size)
	return c
}

// wantParked holds that ticks are parked for something, and that nothing looks at them within the next hours.
func (h *house) wantParked(name string, size int) {
	h.t.Helper()
	if n := h.number(`SELECT count(*) FROM held WHERE waits_for = $1 AND due_at > now() + interval '20 hours'`, name); n != size {
		h.t.Fatalf("%d ticks are parked for %q, want %d", n, name, size)
	}
}

// wantStill holds that a round writes nothing of what is held, and makes no chunk.
func (h *house) wantStill() {
	h.t.Helper()
	const held = `SELECT count(*), COALESCE(sum(xmin::text::bigint), 0), COALESCE(sum(hashtext(ctid::text)), 0), (SELECT count(*) FROM chunk) FROM held`
	read := func() (state [4]int64) {
		if err := h.pool.QueryRow(h.t.Context(), held).Scan(&state[0], &state[1], &state[2], &state[3]); err != nil {
			h.t.Fatal(err)
		}
		return state
	}
	before := read()
	h.round()
	h.round()
	if after := read(); after != before {
		h.t.Errorf("count, transactions and places of held rows, and chunks, were %v and are %v", before, after)
	}
}

// wantSent starts a process and holds that ticks are sent, each once.
func (h *house) wantSent(c *catcher, size int) {
	h.t.Helper()
	h.start(h.process())
	until(h.t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	// On a machine that stalls for seconds the process counts as dead, and what it has sent is sent again.
	again := h.number(`SELECT count(*) FROM chunk WHERE epoch > 1`) > 0
	if sent := c.caught(); len(sent) != size && !again || len(keysOf(sent)) != size || len(c.errs) > 0 {
		h.t.Errorf("%d were sent, of %d keys; %v", len(sent), len(keysOf(sent)), c.errs)
	}
	until(h.t, "no row of held and wake is left", func() bool { return h.number(`SELECT (SELECT count(*) FROM held) + (SELECT count(*) FROM wake)`) == 0 })
}

func TestTicksOfAHeldEndpointCostNothingAndGoOutOnceItIsEnabled(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 2300 // more than are woken at once
	c := h.parkedHerd("w", size)
	h.wantStill()
	h.setEndpoint("w", c.URL, "held", 400) // a change that ends nothing
	h.wantStill()
	h.setEndpoint("w", c.URL, "enabled", 500) // nobody runs who could wake them: that one died
	h.wantSent(c, size)
}

func TestTicksOfAHaltedOrSuspendedTenantCostNothingAndGoOutOnceItGoesOn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ stop, goOn func(h *house) error }{
		"halted": {
			stop: func(h *house) error {
				_, err := h.dispatch.Control.Halt(t.Context(), h.tenant, control.HaltParams{})
				return err
			},
			goOn: func(h *house) error {
				_, err := h.dispatch.Control.Continue(t.Context(), h.tenant)
				return err
			},
		},
		"suspended": {
			stop: func(h *house) error { return h.setStatus(tenants.Suspended) },
			goOn: func(h *house) error { return h.setStatus(tenants.Active) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			const size = 30
			caught := h.parkedHerd("w", size)
			if err := c.stop(h); err != nil {
				t.Fatal(err)
			}
			h.wantStill()
			h.setEndpoint("w", caught.URL, "enabled", 500)
			h.round()
			h.openAll()
			h.wantParked("", size)
			h.wantStill()
			if err := c.goOn(h); err != nil {
				t.Fatal(err)
			}
			h.wantSent(caught, size)
		})
	}
}

// setStatus has the platform say whether the tenant is active.
func (h *house) setStatus(status string) error {
	_, _, err := tenants.Put(h.t.Context(), postgrestest.As(h.t, h.pool, postgres.PlatformRole), "acme", tenants.Params{Status: status})
	return err
}

func TestParkedTicksGoToTheOtherEndpointOfTheirWorkflow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 20
	h.parkedHerd("w", size)
	other := h.catcher("other", 500, nil)
	if _, _, err := h.schedules.PutWorkflow(t.Context(), h.tenant, "w", schedules.WorkflowParams{Endpoint: new("other")}); err != nil {
		t.Fatal(err)
	}
	h.wantSent(other, size)
}

func TestParkedTicksAreFoundWhoseWaitEndedWithoutAWord(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 20
	c := h.parkedHerd("w", size)
	h.exec(`UPDATE endpoint SET state = 'enabled'`)
	h.exec(`DELETE FROM wake`)
	if err := h.dispatch.WakeForsaken(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantSent(c, size)
}

func TestParkedTicksEndWithTheirWorkflow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 20
	h.parkedHerd("w", size)
	if err := h.schedules.DeleteWorkflow(t.Context(), h.tenant, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.start(h.process())
	until(t, "all are cancelled", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 4`) == size })
}

func TestParkedTickIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.parkedHerd("w", 2)
	got, err := h.dispatch.Control.Cancel(t.Context(), h.tenant, h.history("w", "first")[0].TickID)
	if err != nil || got.State != "cancelled" {
		t.Errorf("got %+v, %v", got, err)
	}
	h.wantParked("w", 1)
}

func TestParkedTickIsCancelledForANewerOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("overlap", 1, nil)
	h.setEndpoint("overlap", c.URL, "held", 1)
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("cancel_other"))
	h.trigger()
	parked := func() bool { return h.number(`SELECT count(*) FROM held WHERE waits_for = 'overlap'`) == 1 }
	until(t, "the first is parked", parked)
	h.trigger()
	until(t, "the first is cancelled", func() bool { return h.states()[0] == "cancelled superseded" })
	until(t, "the second is parked", parked)
}

// While a change that ends the wait is not committed, nobody can know whether a tick is to be parked: it is not.
func TestTickIsNotParkedWhileItsEndpointIsBeingEnabled(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("w", 500, nil)
	h.setEndpoint("w", c.URL, "held", 500)
	h.sweptHerd("w", 5)
	tx, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // it may be over
	if _, err := tx.Exec(t.Context(), `UPDATE endpoint SET state = 'enabled'`); err != nil {
		t.Fatal(err)
	}
	h.openAll()
	if n := h.number(`SELECT count(*) FROM held WHERE waits_for IS NULL AND due_at < now() + interval '1 minute'`); n != 5 {
		t.Errorf("%d ticks are held for a moment, want 5", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantSent(c, 5)
}

// A change that ends the wait is committed only after those who park ticks, so that it finds them.
func TestAnEndpointIsEnabledAfterTheTicksAreParkedThatItWakes(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.parkedHerd("w", 1)
	tx, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // it may be over
	const park = `WITH parker AS MATERIALIZED (SELECT pg_try_advisory_xact_lock_shared($2, $1::int)) UPDATE held SET waits_for = 'w' FROM parker WHERE tenant_id = $1`
	h.exec(`UPDATE held SET waits_for = NULL`)
	if _, err := tx.Exec(t.Context(), park, h.tenant, parkLocks); err != nil {
		t.Fatal(err)
	}
	enabled := make(chan struct{})
	go func() {
		defer close(enabled)
		h.setEndpoint("w", c.URL, "enabled", 500)
	}()
	defer func() { <-enabled }()
	until(t, "the change waits", func() bool {
		return h.number(`SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'`) == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-enabled
	h.wantSent(c, 1)
}

func TestNoTickIsForgottenHoweverOftenItsEndpointIsHeld(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const size = 60
	c := h.catcher("w", 1, nil)
	h.start(h.dispatch)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.fire("w", size, 2)
	}()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		h.setEndpoint("w", c.URL, "held", 1)
		h.setEndpoint("w", c.URL, "enabled", 1)
	}
	until(t, "all are sent, or parked for good", func() bool {
		return h.number(`SELECT count(*) FROM tick WHERE state = 2`)+h.number(`SELECT count(*) FROM held WHERE waits_for IS NOT NULL`) == size &&
			h.number(`SELECT count(*) FROM wake`) == 0
	})
	if n := h.number(`SELECT count(*) FROM held`); n != 0 {
		t.Errorf("%d ticks are forgotten", n)
	}
}

func TestTurnsOfAStoppedTenantAreLookedAtInMinutes(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", daily(0))
	if err := h.setStatus(tenants.Suspended); err != nil {
		t.Fatal(err)
	}
	h.backdate(h.tenant)
	h.round()
	if n := h.number(`SELECT count(*) FROM turn WHERE due_at > now() + interval '4 minutes'`); n != 1 {
		t.Fatalf("%d turns are put off for minutes, want 1", n)
	}
	h.exec(`UPDATE turn SET due_at = now()`)
	h.round()
	if n := h.number(`SELECT count(*) FROM turn WHERE due_at > now() + interval '4 minutes'`); n != 1 {
		t.Errorf("%d turns are put off again, want 1", n)
	}
	drawn := h.at(`SELECT spent_to FROM allowance`)
	h.round()
	h.round()
	if again := h.at(`SELECT spent_to FROM allowance`); !again.Equal(drawn) {
		t.Errorf("tokens were drawn at %s and at %s", drawn, again)
	}
	if err := h.setStatus(tenants.Active); err != nil {
		t.Fatal(err)
	}
	h.start(h.dispatch)
	until(t, "it fires", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 1`) == 1 })
}

func TestASweepDoesNotReadTheTurnsOfOthers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", daily(0))
	h.backdate(h.tenant)
	h.exec(`INSERT INTO turn (shard, tenant_id, due_at) SELECT s, 1000 + n, now() + interval '1 hour' FROM generate_series(0, 63) s, generate_series(1, 300) n`)
	h.exec(`ANALYZE turn`)
	shard := h.number(`SELECT shard FROM cohort`)
	if n := h.reads("turn", readDue, shard); n > 10 {
		t.Errorf("%d turns were read for one cohort", n)
	}
}

func TestLookingForForsakenTicksReadsOneOfEachWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`
		INSERT INTO held (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at, waits_for)
		SELECT $1 + n % 4, n, now() - n * interval '1 second', 0, 1, n % 64, 'endpoint', 'infinity', CASE WHEN n % 8 < 4 THEN 'a' ELSE 'b' END
		FROM generate_series(1, 20000) n`, h.tenant)
	h.exec(`ANALYZE held`)
	if n := h.reads("held", readForsaken, -1, "", 1000); n > 20 {
		t.Errorf("%d rows were read for 8 waits", n)
	}
}

// reads is how many rows of a table a statement reads.
func (h *house) reads(table, sql string, args ...any) (n int) {
	h.t.Helper()
	ctx := h.t.Context()
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
		h.t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		h.t.Fatal(err)
	}
	err = tx.QueryRow(ctx, `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = $1`, table).Scan(&n)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}
