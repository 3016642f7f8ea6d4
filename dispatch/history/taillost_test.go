package history_test

import (
	"slices"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// A process that loses the connection on which it hears of other processes opens it again, and the tail goes on without a gap.
func TestATailGoesOnAfterALostConnection(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other := h.Process()
	h.Start(other)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	f := follow(h.Open(other).As("acme", "schedules:read"), "", "")
	came := func(n int) {
		t.Helper()
		dispatchtest.Until(t, "the lines came", func() bool {
			return slices.Equal(f.lines(), slices.Repeat([]string{"fired w k running"}, n))
		})
	}
	trigger(h, "w", "k")
	came(1)
	var cut int
	if err := h.Pool.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
		FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND query = 'LISTEN carillon_tail'`).Scan(&cut); err != nil || cut == 0 {
		t.Fatalf("%d connections were cut: %v", cut, err)
	}
	trigger(h, "w", "k")
	came(2)
	if f.gaps != 0 {
		t.Errorf("%d gaps", f.gaps)
	}
}
