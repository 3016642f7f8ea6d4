package tail_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/tail"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/tenants"
)

// What waits for a client that takes nothing is one note: all ticks are counted, and fifty are named.
func TestAClientThatTakesNothingKeepsOneNote(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant, err := tenants.Ensure(t.Context(), pool, "acme", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	one := tail.New(pool, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		one.Run(t.Context())
	}()
	t.Cleanup(func() { <-done })
	follow := func() *tail.Client {
		t.Helper()
		c, leave, err := one.Follow(t.Context(), tenant.ID, tail.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return c
	}
	slow, quick := follow(), follow()
	const rounds, each = 4, 5_000
	at := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	took := 0
	for round := range rounds {
		for n := range each {
			k := ident.TickKey{Schedule: int64(round*each + n), At: at}
			one.Released(tenant.ID, k)
			one.EndedOne(tenant.ID, k, record.Succeeded)
		}
		for took < 2*each*(round+1) {
			<-quick.Stirred()
			n, _ := quick.Take()
			took += n.Fired + n.Ended
		}
	}
	var got tail.Note
	for got.Fired+got.Ended < took { // a note reaches one client before the other
		<-slow.Stirred()
		n, missed := slow.Take()
		if len(n.Entries) > 50 || missed {
			t.Fatalf("%d entries; missed: %t", len(n.Entries), missed)
		}
		got.Fired, got.Ended = got.Fired+n.Fired, got.Ended+n.Ended
	}
	if got.Fired != rounds*each || got.Ended != rounds*each {
		t.Errorf("%d fired and %d ended of %d", got.Fired, got.Ended, rounds*each)
	}
	if again, _ := slow.Take(); again.Fired+again.Ended+len(again.Entries) > 0 {
		t.Errorf("taken again: %+v", again)
	}
}
