package dispatch_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
)

// openBehind opens the only chunk while a transaction holds a lock, and calls change once the opening waits for that lock.
func (h *house) openBehind(lock string, change func(tx pgx.Tx)) {
	h.t.Helper()
	chunks := h.chunks()
	if len(chunks) != 1 {
		h.t.Fatalf("%d chunks, want 1", len(chunks))
	}
	tx, err := h.pool.Begin(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(h.t.Context()) }()
	if _, err := tx.Exec(h.t.Context(), lock); err != nil {
		h.t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() { opened <- h.dispatch.Open(h.t.Context(), chunks[0]) }()
	until(h.t, "the opening waits", func() bool {
		return h.number(`SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`) == 1
	})
	change(tx)
	if err := tx.Commit(h.t.Context()); err != nil {
		h.t.Error(err)
	}
	if err := <-opened; err != nil {
		h.t.Fatal(err)
	}
}

// sweptDaily sweeps a due schedule, and returns what it was put with.
func (h *house) sweptDaily() schedules.Params {
	h.t.Helper()
	p := daily(0)
	if err := h.dispatch.Register(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.put("w", "k", p)
	h.backdate(h.tenant)
	h.sweepOnce(int16(h.number(`SELECT shard FROM cohort`)))
	return p
}

// An opening that waits before it reads the schedule fires with the version that it then finds, and not before that was written.
func TestATickDoesNotFireBeforeItsVersion(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sweptDaily()
	h.openBehind(`LOCK TABLE schedule_state IN ACCESS EXCLUSIVE MODE`, func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), `UPDATE schedule SET version = 2, payload = '2', updated_at = clock_timestamp()`); err != nil {
			t.Error(err)
		}
	})
	if n := h.number(`SELECT count(*) FROM tick t JOIN schedule s ON s.id = t.schedule_id WHERE t.version = 2 AND t.fired_at >= s.updated_at`); n != 1 {
		t.Error("the tick does not fire with version 2 after that was written")
	}
}

// An opening that has read the schedule and then waits fires with the version that it read, before the next one was written.
func TestATickThatWaitsFiresWhenItsVersionWasRead(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := h.sweptDaily()
	var updated time.Time
	h.openBehind(`SELECT FROM schedule_state FOR UPDATE`, func(pgx.Tx) {
		p.Payload = web.Raw(`{"new": true}`)
		updated = h.put("w", "k", p).UpdatedAt
	})
	var fired time.Time
	var version int
	if err := h.pool.QueryRow(t.Context(), `SELECT fired_at, version FROM tick`).Scan(&fired, &version); err != nil {
		t.Fatal(err)
	}
	if version != 1 || !fired.Before(updated) {
		t.Errorf("version %d fired at %s, and version 2 was written at %s", version, fired, updated)
	}
}

// stopMidway makes the statement that decides ticks wait for a lock after it has taken its snapshot: it looks up the end of
// schedules with a limit of ticks in a view that takes the lock.
func (h *house) stopMidway() {
	h.t.Helper()
	for _, sql := range []string{
		`ALTER TABLE member RENAME TO stored_member`,
		`CREATE VIEW member AS SELECT * FROM stored_member WHERE current_user <> '` + postgres.EngineRole + `' OR pg_advisory_xact_lock_shared(4711) IS NOT NULL`,
		`GRANT ALL ON member TO PUBLIC`,
		`UPDATE schedule SET ticks_left = 10`,
	} {
		if _, err := h.pool.Exec(h.t.Context(), sql); err != nil {
			h.t.Fatal(err)
		}
	}
}

// A version that was replaced before fired_at does not fire, even where the replacement comes after the snapshot that read it.
func TestAReplacedVersionDoesNotFireLater(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sweptDaily()
	h.stopMidway()
	var replaced time.Time
	h.openBehind(`SELECT pg_advisory_xact_lock(4711)`, func(pgx.Tx) {
		if _, err := h.pool.Exec(t.Context(), `UPDATE schedule SET version = 2, payload = '2', updated_at = clock_timestamp()`); err != nil {
			t.Error(err)
		}
		if err := h.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&replaced); err != nil {
			t.Error(err)
		}
	})
	var fired time.Time
	var version int
	if err := h.pool.QueryRow(t.Context(), `SELECT fired_at, version FROM tick`).Scan(&fired, &version); err != nil {
		t.Fatal(err)
	}
	if version == 1 && !fired.Before(replaced) {
		t.Errorf("version 1 fired at %s, and version 2 was stored before %s", fired, replaced)
	}
}

// A tick that is cancelled because its schedule was deleted does not fire before the deletion.
func TestATickIsNotCancelledBeforeItsScheduleIsDeleted(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sweptDaily()
	h.stopMidway()
	h.openBehind(`SELECT pg_advisory_xact_lock(4711)`, func(pgx.Tx) {
		if err := h.schedules.Delete(postgres.ForTenant(t.Context(), int32(h.tenant)), h.tenant, "w", "k", schedules.Changer{By: "tester"}); err != nil {
			t.Error(err)
		}
	})
	if n := h.number(`SELECT count(*) FROM tick t JOIN revision r USING (schedule_id, version) WHERE r.deleted AND t.state = 4 AND t.fired_at >= r.ended_at AND t.ended_at >= t.fired_at`); n != 1 {
		t.Error("the tick is not cancelled at the deletion or after it")
	}
}
