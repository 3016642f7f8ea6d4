package dispatch_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

// An opening that waits before it reads the schedule fires with the version that it then finds, at the time of that reading.
func TestATickDoesNotFireBeforeItsVersion(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sweptDaily()
	h.openBehind(`LOCK TABLE schedule_state IN ACCESS EXCLUSIVE MODE`, func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), `UPDATE schedule SET version = 2, payload = '2', updated_at = clock_timestamp()`); err != nil {
			t.Error(err)
		}
	})
	if n := h.number(`SELECT count(*) FROM tick t JOIN schedule s ON s.id = t.schedule_id WHERE t.version = 2 AND t.fired_at > s.updated_at`); n != 1 {
		t.Error("the tick does not fire with version 2 after that was written")
	}
}

// An opening that has read the schedule and then waits fires with the version that it read, at the time of that reading.
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
