package main

import (
	"log/slog"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// The tests change a setting of the whole process, so they run alone.

func TestMemoryFollowsTheControlGroup(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	const group, want = 1000 << 20, 900 << 20
	if got := limitMemory(memlimit.Limit(group), slog.New(slog.DiscardHandler)); got != want || debug.SetMemoryLimit(-1) != want {
		t.Errorf("got %d, and %d in force; want %d", got, debug.SetMemoryLimit(-1), want)
	}
	none := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	if got := limitMemory(none, slog.New(slog.DiscardHandler)); got != 0 {
		t.Errorf("got %d without a limit", got)
	}
}

func TestTheEnvironmentsMemoryLimitWins(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "123MiB")
	before := debug.SetMemoryLimit(123 << 20) // as the runtime does at the start
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	if got := limitMemory(memlimit.Limit(1<<30), slog.New(slog.DiscardHandler)); got != 123<<20 || debug.SetMemoryLimit(-1) != 123<<20 {
		t.Errorf("got %d, and %d in force", got, debug.SetMemoryLimit(-1))
	}
}
