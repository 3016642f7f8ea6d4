package open_test

import (
	"context"
	"testing"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// setEndpoint sets the state of the endpoint of a catcher.
func setEndpoint(h *dispatchtest.Carillon, name, url, state string, batch int16) {
	h.T.Helper()
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(h.T.Context(), h.Tenant, name, push.EndpointParams{URL: url + "/hook", State: state, Batch: &batch}); err != nil {
		h.T.Fatal(err)
	}
}

// round does once what processes do all the time: it wakes, does the upkeep, and sweeps all shards.
func round(h *dispatchtest.Carillon) {
	h.T.Helper()
	ctx := h.T.Context()
	for _, do := range []func(context.Context) error{h.Dispatch.Wake, h.Dispatch.WakeForsaken} {
		if err := do(ctx); err != nil {
			h.T.Fatal(err)
		}
	}
	for shard := range int16(cohorts.Shards) {
		if _, err := h.Dispatch.SweepOnce(ctx, shard); err != nil {
			h.T.Fatal(err)
		}
	}
}

// parkedHerd parks the ticks of size schedules for an endpoint that is held.
func parkedHerd(h *dispatchtest.Carillon, name string, size int) *dispatchtest.Catcher {
	h.T.Helper()
	c := h.Catcher(name, 500, nil)
	setEndpoint(h, name, c.URL, "held", 500)
	h.SweptHerd(name, size)
	dispatchtest.Until(h.T, "all are open", func() bool {
		round(h)
		h.OpenAll()
		return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == size
	})
	wantParked(h, name, size)
	return c
}

// wantParked checks that ticks are parked for something, and that nothing looks at them within the next hours.
func wantParked(h *dispatchtest.Carillon, name string, size int) {
	h.T.Helper()
	if n := h.Number(`SELECT count(*) FROM delayed WHERE waits_for = $1 AND due_at > now() + interval '20 hours'`, name); n != size {
		h.T.Fatalf("%d ticks are parked for %q, want %d", n, name, size)
	}
}

// wantStill checks that a round writes nothing of what is held, and makes no chunk.
func wantStill(h *dispatchtest.Carillon) {
	h.T.Helper()
	const held = `SELECT count(*), COALESCE(sum(xmin::text::bigint), 0), COALESCE(sum(hashtext(ctid::text)), 0), (SELECT count(*) FROM chunk) FROM delayed`
	read := func() (state [4]int64) {
		if err := h.Pool.QueryRow(h.T.Context(), held).Scan(&state[0], &state[1], &state[2], &state[3]); err != nil {
			h.T.Fatal(err)
		}
		return state
	}
	before := read()
	round(h)
	round(h)
	if after := read(); after != before {
		h.T.Errorf("count, transactions and places of held rows, and chunks, were %v and are %v", before, after)
	}
}

// wantSent starts a process and checks that it sends the ticks, each once.
func wantSent(h *dispatchtest.Carillon, c *dispatchtest.Catcher, size int) {
	h.T.Helper()
	h.Start(h.Process())
	dispatchtest.Until(h.T, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	// On a machine that stalls for seconds the process counts as dead, and what it has sent is sent again.
	again := h.Number(`SELECT count(*) FROM chunk WHERE epoch > 1`) > 0
	if sent := c.Caught(); len(sent) != size && !again || len(dispatchtest.KeysOf(sent)) != size || len(c.Errs) > 0 {
		h.T.Errorf("%d were sent, of %d keys; %v", len(sent), len(dispatchtest.KeysOf(sent)), c.Errs)
	}
	dispatchtest.Until(h.T, "no row of held and wake is left", func() bool {
		return h.Number(`SELECT (SELECT count(*) FROM delayed) + (SELECT count(*) FROM wake)`) == 0
	})
}

func TestTicksOfAHeldEndpointCostNothingAndGoOutOnceItIsEnabled(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 2300 // more than are woken at once
	c := parkedHerd(h, "w", size)
	wantStill(h)
	setEndpoint(h, "w", c.URL, "held", 400) // a change that ends nothing
	wantStill(h)
	setEndpoint(h, "w", c.URL, "enabled", 500) // no process is running that could wake the ticks
	wantSent(h, c, size)
}

func TestTicksOfAHaltedOrSuspendedTenantCostNothingAndGoOutOnceItGoesOn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		stop, goOn func(h *dispatchtest.Carillon) error
	}{
		"halted": {
			stop: func(h *dispatchtest.Carillon) error {
				_, err := h.Dispatch.Control.Halt(t.Context(), h.Tenant, control.HaltParams{})
				return err
			},
			goOn: func(h *dispatchtest.Carillon) error {
				_, err := h.Dispatch.Control.Continue(t.Context(), h.Tenant)
				return err
			},
		},
		"suspended": {
			stop: func(h *dispatchtest.Carillon) error { return setStatus(h, tenants.Suspended) },
			goOn: func(h *dispatchtest.Carillon) error { return setStatus(h, tenants.Active) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := dispatchtest.New(t)
			const size = 30
			caught := parkedHerd(h, "w", size)
			if err := c.stop(h); err != nil {
				t.Fatal(err)
			}
			wantStill(h)
			setEndpoint(h, "w", caught.URL, "enabled", 500)
			round(h)
			h.OpenAll()
			wantParked(h, "", size)
			wantStill(h)
			if err := c.goOn(h); err != nil {
				t.Fatal(err)
			}
			wantSent(h, caught, size)
		})
	}
}

// setStatus has the platform say whether the tenant is active.
func setStatus(h *dispatchtest.Carillon, status string) error {
	_, _, err := tenants.Put(h.T.Context(), postgrestest.As(h.T, h.Pool, postgres.PlatformRole), "acme", tenants.Params{Status: status})
	return err
}

func TestParkedTicksGoToTheOtherEndpointOfTheirWorkflow(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 20
	parkedHerd(h, "w", size)
	other := h.Catcher("other", 500, nil)
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, "w", schedules.WorkflowParams{Endpoint: new("other")}); err != nil {
		t.Fatal(err)
	}
	wantSent(h, other, size)
}

func TestParkedTicksAreFoundWhoseWaitEndedWithoutAWord(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 20
	c := parkedHerd(h, "w", size)
	h.Exec(`UPDATE endpoint SET state = 'enabled'`)
	h.Exec(`DELETE FROM wake`)
	if err := h.Dispatch.WakeForsaken(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSent(h, c, size)
}

func TestParkedTicksEndWithTheirWorkflow(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 20
	parkedHerd(h, "w", size)
	if err := h.Schedules.DeleteWorkflow(t.Context(), h.Tenant, "w", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Process())
	dispatchtest.Until(t, "all are cancelled", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 4`) == size })
}

func TestParkedTickIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	parkedHerd(h, "w", 2)
	got, err := h.Dispatch.Control.Cancel(t.Context(), h.Tenant, h.History("w", "first")[0].TickID)
	if err != nil || got.State != "cancelled" {
		t.Errorf("got %+v, %v", got, err)
	}
	wantParked(h, "w", 1)
}

func TestParkedTickIsCancelledForANewerOne(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("overlap", 1, nil)
	setEndpoint(h, "overlap", c.URL, "held", 1)
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("cancel_other"))
	h.Trigger()
	parked := func() bool { return h.Number(`SELECT count(*) FROM delayed WHERE waits_for = 'overlap'`) == 1 }
	dispatchtest.Until(t, "the first is parked", parked)
	h.Trigger()
	dispatchtest.Until(t, "the first is cancelled", func() bool { return h.States()[0] == "cancelled superseded" })
	dispatchtest.Until(t, "the second is parked", parked)
}

// While a change that ends the wait is not committed yet, no tick is parked: it cannot be known whether the wait will end.
func TestTickIsNotParkedWhileItsEndpointIsBeingEnabled(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("w", 500, nil)
	setEndpoint(h, "w", c.URL, "held", 500)
	h.SweptHerd("w", 5)
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // it may be over
	if _, err := tx.Exec(t.Context(), `UPDATE endpoint SET state = 'enabled'`); err != nil {
		t.Fatal(err)
	}
	h.OpenAll()
	if n := h.Number(`SELECT count(*) FROM delayed WHERE waits_for IS NULL AND due_at < now() + interval '1 minute'`); n != 5 {
		t.Errorf("%d ticks are held for a moment, want 5", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSent(h, c, 5)
}

// Whoever changes profiles of subjects locks their shares. These locks have nothing to do with those of parking, also if a share has the number of the tenant.
func TestTicksAreParkedBesideAChangeOfProfiles(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // releases the locks
	for share := range cohorts.SubjectShares {
		if err := cohorts.WaitForFollowers(t.Context(), tx, share); err != nil {
			t.Fatal(err)
		}
	}
	if h.Tenant >= cohorts.SubjectShares {
		t.Fatalf("no share has the number of tenant %d", h.Tenant)
	}
	parkedHerd(h, "w", 5)
}

// A change that ends the wait is committed only after the transactions that park ticks, so that it finds these ticks.
func TestAnEndpointIsEnabledAfterTheTicksAreParkedThatItWakes(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := parkedHerd(h, "w", 1)
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // it may be over
	const park = `WITH parker AS MATERIALIZED (SELECT pg_try_advisory_xact_lock_shared($2, $1::int)) UPDATE delayed SET waits_for = 'w' FROM parker WHERE tenant_id = $1`
	h.Exec(`UPDATE delayed SET waits_for = NULL`)
	if _, err := tx.Exec(t.Context(), park, h.Tenant, postgres.ParkLocks); err != nil {
		t.Fatal(err)
	}
	enabled := make(chan struct{})
	go func() {
		defer close(enabled)
		setEndpoint(h, "w", c.URL, "enabled", 500)
	}()
	defer func() { <-enabled }()
	dispatchtest.Until(t, "the change waits", func() bool {
		return h.Number(`SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'`) == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-enabled
	wantSent(h, c, 1)
}

func TestNoTickIsForgottenHoweverOftenItsEndpointIsHeld(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 60
	c := h.Catcher("w", 1, nil)
	h.Start(h.Dispatch)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Fire("w", size, 2)
	}()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		setEndpoint(h, "w", c.URL, "held", 1)
		setEndpoint(h, "w", c.URL, "enabled", 1)
	}
	// One statement reads both counts: between two statements, a parked tick could be woken and counted in neither.
	const over = `SELECT CASE WHEN EXISTS (SELECT FROM wake) THEN 0
		ELSE (SELECT count(*) FROM tick WHERE state = 2) + (SELECT count(*) FROM delayed WHERE waits_for IS NOT NULL) END`
	dispatchtest.Until(t, "all are sent, or parked for good", func() bool { return h.Number(over) == size })
	if n := h.Number(`SELECT count(*) FROM delayed`); n != 0 {
		t.Errorf("%d ticks are forgotten", n)
	}
}

func TestTurnsOfAStoppedTenantAreLookedAtInMinutes(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.Daily(0))
	if err := setStatus(h, tenants.Suspended); err != nil {
		t.Fatal(err)
	}
	h.Backdate(h.Tenant)
	round(h)
	if n := h.Number(`SELECT count(*) FROM fair_turn WHERE due_at > now() + interval '4 minutes'`); n != 1 {
		t.Fatalf("%d turns are put off for minutes, want 1", n)
	}
	h.Exec(`UPDATE fair_turn SET due_at = now()`)
	round(h)
	if n := h.Number(`SELECT count(*) FROM fair_turn WHERE due_at > now() + interval '4 minutes'`); n != 1 {
		t.Errorf("%d turns are put off again, want 1", n)
	}
	drawn := h.At(`SELECT spent_to FROM allowance`)
	round(h)
	round(h)
	if again := h.At(`SELECT spent_to FROM allowance`); !again.Equal(drawn) {
		t.Errorf("tokens were drawn at %s and at %s", drawn, again)
	}
	if err := setStatus(h, tenants.Active); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "it fires", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == 1 })
}

func TestASweepDoesNotReadTheTurnsOfOthers(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.Daily(0))
	h.Backdate(h.Tenant)
	h.Exec(`INSERT INTO fair_turn (shard, tenant_id, due_at) SELECT s, 1000 + n, now() + interval '1 hour' FROM generate_series(0, 63) s, generate_series(1, 300) n`)
	h.Exec(`ANALYZE fair_turn`)
	shard := h.Number(`SELECT shard FROM cohort`)
	if n := reads(h, "fair_turn", dispatchtest.ReadDue, shard); n > 10 {
		t.Errorf("%d turns were read for one cohort", n)
	}
}

func TestLookingForForsakenTicksReadsOneOfEachWait(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at, waits_for)
		SELECT $1 + n % 4, n, now() - n * interval '1 second', 0, 1, n % 64, 'endpoint', 'infinity', CASE WHEN n % 8 < 4 THEN 'a' ELSE 'b' END
		FROM generate_series(1, 20000) n`, h.Tenant)
	h.Exec(`ANALYZE delayed`)
	if n := reads(h, "delayed", dispatchtest.ReadForsaken, -1, "", 1000); n > 20 {
		t.Errorf("%d rows were read for 8 waits", n)
	}
}

// reads is how many rows of a table a statement reads.
func reads(h *dispatchtest.Carillon, table, sql string, args ...any) (n int) {
	h.T.Helper()
	ctx := h.T.Context()
	tx, err := h.Pool.Begin(ctx)
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
		h.T.Fatal(err)
	}
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		h.T.Fatal(err)
	}
	err = tx.QueryRow(ctx, `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = $1`, table).Scan(&n)
	if err != nil {
		h.T.Fatal(err)
	}
	return n
}
