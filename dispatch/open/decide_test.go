package open_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/jackc/pgx/v5"
)

// openBehind opens the only chunk while a transaction holds a lock, and calls change once the opening waits for that lock.
func openBehind(h *dispatchtest.Carillon, lock string, change func(tx pgx.Tx)) {
	h.T.Helper()
	chunks := h.Chunks()
	if len(chunks) != 1 {
		h.T.Fatalf("%d chunks, want 1", len(chunks))
	}
	tx, err := h.Pool.Begin(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = tx.Rollback(h.T.Context()) }()
	if _, err := tx.Exec(h.T.Context(), lock); err != nil {
		h.T.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() { opened <- h.Dispatch.Open(h.T.Context(), chunks[0]) }()
	dispatchtest.Until(h.T, "the opening waits", func() bool {
		return h.Number(`SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`) == 1
	})
	change(tx)
	if err := tx.Commit(h.T.Context()); err != nil {
		h.T.Error(err)
	}
	if err := <-opened; err != nil {
		h.T.Fatal(err)
	}
}

// sweptDaily sweeps a due schedule, and returns what it was put with.
func sweptDaily(h *dispatchtest.Carillon) schedules.Params {
	h.T.Helper()
	p := dispatchtest.Daily(0)
	if err := h.Dispatch.Register(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	h.Put("w", "k", p)
	h.Backdate(h.Tenant)
	h.SweepOnce(int16(h.Number(`SELECT shard FROM cohort`)))
	return p
}

// An opening that waits before it reads the schedule fires with the version that it then finds, and not before that was written.
func TestATickDoesNotFireBeforeItsVersion(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	sweptDaily(h)
	openBehind(h, `LOCK TABLE schedule_state IN ACCESS EXCLUSIVE MODE`, func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), `UPDATE schedule SET version = 2, payload = '2', updated_at = clock_timestamp()`); err != nil {
			t.Error(err)
		}
	})
	if n := h.Number(`SELECT count(*) FROM tick t JOIN schedule s ON s.id = t.schedule_id WHERE t.version = 2 AND t.fired_at >= s.updated_at`); n != 1 {
		t.Error("the tick does not fire with version 2 after that was written")
	}
}

// An opening that has read the schedule and then waits fires with the version that it read, before the next one was written.
func TestATickThatWaitsFiresWhenItsVersionWasRead(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	p := sweptDaily(h)
	var updated time.Time
	openBehind(h, `SELECT FROM schedule_state FOR UPDATE`, func(pgx.Tx) {
		p.Payload = web.Raw(`{"new": true}`)
		updated = h.Put("w", "k", p).UpdatedAt
	})
	var fired time.Time
	var version int
	if err := h.Pool.QueryRow(t.Context(), `SELECT fired_at, version FROM tick`).Scan(&fired, &version); err != nil {
		t.Fatal(err)
	}
	if version != 1 || !fired.Before(updated) {
		t.Errorf("version %d fired at %s, and version 2 was written at %s", version, fired, updated)
	}
}

// stopMidway makes the statement that decides ticks wait for a lock after it has taken its snapshot: it looks up the end of
// schedules with a limit of ticks in a view that takes the lock.
func stopMidway(h *dispatchtest.Carillon) {
	h.T.Helper()
	for _, sql := range []string{
		`ALTER TABLE member RENAME TO stored_member`,
		`CREATE VIEW member AS SELECT * FROM stored_member WHERE current_user <> '` + postgres.EngineRole + `' OR pg_advisory_xact_lock_shared(4711) IS NOT NULL`,
		`GRANT ALL ON member TO PUBLIC`,
		`UPDATE schedule SET ticks_left = 10`,
	} {
		if _, err := h.Pool.Exec(h.T.Context(), sql); err != nil {
			h.T.Fatal(err)
		}
	}
}

// A version that was replaced before fired_at does not fire, even where the replacement comes after the snapshot that read it.
func TestAReplacedVersionDoesNotFireLater(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	sweptDaily(h)
	stopMidway(h)
	var replaced time.Time
	openBehind(h, `SELECT pg_advisory_xact_lock(4711)`, func(pgx.Tx) {
		if _, err := h.Pool.Exec(t.Context(), `UPDATE schedule SET version = 2, payload = '2', updated_at = clock_timestamp()`); err != nil {
			t.Error(err)
		}
		if err := h.Pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&replaced); err != nil {
			t.Error(err)
		}
	})
	var fired time.Time
	var version int
	if err := h.Pool.QueryRow(t.Context(), `SELECT fired_at, version FROM tick`).Scan(&fired, &version); err != nil {
		t.Fatal(err)
	}
	if version == 1 && !fired.Before(replaced) {
		t.Errorf("version 1 fired at %s, and version 2 was stored before %s", fired, replaced)
	}
}

// A tick that is cancelled because its schedule was deleted does not fire before the deletion.
func TestATickIsNotCancelledBeforeItsScheduleIsDeleted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	sweptDaily(h)
	stopMidway(h)
	openBehind(h, `SELECT pg_advisory_xact_lock(4711)`, func(pgx.Tx) {
		if err := h.Schedules.Delete(postgres.ForTenant(t.Context(), int32(h.Tenant)), h.Tenant, "w", "k", schedules.Changer{By: "tester"}); err != nil {
			t.Error(err)
		}
	})
	if n := h.Number(`SELECT count(*) FROM tick t JOIN revision r USING (schedule_id, version) WHERE r.deleted AND t.state = 4 AND t.fired_at >= r.ended_at AND t.ended_at >= t.fired_at`); n != 1 {
		t.Error("the tick is not cancelled at the deletion or after it")
	}
}

// A tick is not handed out once a halt is acknowledged, though its opening read the tenant before. Whatever of the schedule is written
// meanwhile, no tick fires later than the halt.
func TestATickIsNotHandedOutUnderAHalt(t *testing.T) {
	t.Parallel()
	for change, sql := range map[string]string{
		"the halt alone":           `SELECT`,
		"the halt and the version": `UPDATE schedule SET version = 2, payload = '2', updated_at = clock_timestamp()`,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			h := dispatchtest.New(t)
			sweptDaily(h)
			openBehind(h, `LOCK TABLE schedule_state IN ACCESS EXCLUSIVE MODE`, func(tx pgx.Tx) {
				h.HaltNow(tx)
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Error(err)
				}
			})
			if got := h.History("w", "k"); len(got) != 1 || got[0].State != "skipped" || got[0].Reason != "paused" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The same of a tick that is sent again: it waits until the halt ends.
func TestATickIsNotSentAgainUnderAHalt(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, "pulled", schedules.WorkflowParams{}); err != nil {
		t.Fatal(err)
	}
	h.Put("pulled", "k", dispatchtest.Rarely("skip"))
	if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "pulled", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	h.SweepOnce(int16(h.Number(`SELECT shard FROM schedule`)))
	openBehind(h, `SELECT FROM tick FOR UPDATE`, h.HaltNow)
	if n := h.Number(`SELECT count(*) FROM ready`); n != 0 {
		t.Errorf("%d ticks can be leased", n)
	}
	wantParked(h, "", 1)
}

func TestTickThatWasAskedToBeLeftOutIsRecordedAsSkipped(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all", Missed: "all"}
	made := h.Put("w", "k", p)
	at := made.Upcoming[len(made.Upcoming)-1].Add(5 * time.Second) // it is still to come when the skip is stored
	if _, _, err := h.Schedules.Skip(t.Context(), h.Tenant, "w", "k", schedules.SkipParams{At: []time.Time{at}}, schedules.Changer{}); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Dispatch)
	after := func() bool {
		all := h.History("w", "k")
		return len(all) > 0 && all[len(all)-1].Timestamp.After(at)
	}
	dispatchtest.Until(t, "a tick after it is recorded", after)
	for _, one := range h.History("w", "k") {
		if skipped := one.State == "skipped" && one.Reason == "requested"; skipped != one.Timestamp.Equal(at) {
			t.Errorf("%s is %s %s", one.Timestamp, one.State, one.Reason)
		}
	}
	s, err := h.Schedules.Get(t.Context(), h.Tenant, "w", "k")
	if err != nil || s.Stats.Skipped != 1 || s.LastAt == nil || s.LastAt.Equal(at) {
		t.Errorf("got %+v, %v", s, err)
	}
}
