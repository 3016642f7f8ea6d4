package cluster_test

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// An open transaction that is newer than all that have ended holds the horizon and the settled numbers back too. The test does not run
// beside others: PostgreSQL's snapshot tells only of numbers up to the newest transaction that has ended, and others would end.
func TestTheHorizonWaitsForTheNewestTransaction(t *testing.T) {
	h := dispatchtest.New(t)
	var horizon cluster.Horizon
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var wrote time.Time
	var chunk, ready int64
	if err := tx.QueryRow(t.Context(), `
		SELECT clock_timestamp(), nextval('chunk_id_seq'), nextval('ready_id_seq')
		WHERE pg_current_xact_id() IS NOT NULL`).Scan(&wrote, &chunk, &ready); err != nil {
		t.Fatal(err)
	}
	read := func() (at time.Time, settledChunk, settledReady int64) {
		t.Helper()
		if err := horizon.Read(t.Context(), h.Pool); err != nil {
			t.Fatal(err)
		}
		settledChunk, _ = horizon.Chunks()
		settledReady, _ = horizon.SettledReady()
		return horizon.At, settledChunk, settledReady
	}
	for began := time.Now(); time.Since(began) < 5*cluster.HorizonMargin; {
		at, settledChunk, settledReady := read()
		if !at.Before(wrote) || settledChunk >= chunk || settledReady >= ready {
			t.Fatalf("the transaction that wrote at %v, chunk %d and row %d is open, and the horizon is %v, %d and %d", wrote, chunk, ready, at, settledChunk, settledReady)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "the horizon comes past it", func() bool {
		at, settledChunk, settledReady := read()
		return at.After(wrote) && settledChunk >= chunk && settledReady >= ready
	})
}
