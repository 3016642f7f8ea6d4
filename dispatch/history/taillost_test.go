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
	f, listener := followListening(h.Open(other).As("acme", "schedules:read"))
	came := func(n int) {
		t.Helper()
		dispatchtest.Until(t, "the lines came", func() bool {
			return slices.Equal(f.lines(), slices.Repeat([]string{"fired w k running"}, n))
		})
	}
	known(h, h.Dispatch, 1)
	trigger(h, "w", "k")
	came(1)
	if h.Number(`SELECT pg_terminate_backend($1)::int`, listener) != 1 {
		t.Fatal("the connection was not cut")
	}
	known(h, h.Dispatch, 1)
	trigger(h, "w", "k")
	came(2)
	if f.gaps != 0 {
		t.Errorf("%d gaps", f.gaps)
	}
}

// followListening opens a tail, and returns the number of the database's process for the connection that listens for it. That one is known
// by its last statement, until it is quiet for some seconds and sends another: then the tail is opened again.
func followListening(c dispatchtest.Caller) (f *follower, listener int) {
	c.T.Helper()
	dispatchtest.Until(c.T, "the connection that listens is found", func() bool {
		if f != nil {
			f.end()
		}
		f = follow(c, "", "")
		listener = c.Number(`
			SELECT COALESCE(max(pid), 0)
			FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND query = 'LISTEN carillon_tail'`)
		return listener != 0
	})
	return f, listener
}
