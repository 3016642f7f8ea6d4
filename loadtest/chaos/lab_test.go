package chaos

import (
	"context"
	"testing"
	"time"
)

// A short campaign with every part, and faults for twenty seconds: nothing is lost, doubled or early.
// How long it takes is the machine's affair, and is not asked.
func TestACampaign(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	binary, err := Build(ctx, t.TempDir(), "fault", false)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Run(ctx, Options{
		Seed: 1, For: 20 * time.Second, Tenants: 2, Schedules: 40, Pause: time.Second, Calm: 2 * time.Second, Faulty: 2, Drain: 3 * time.Minute,
		Binary: binary, Say: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d ticks, %d receipts, %d operations, faults %v, crashes %v", v.Ticks, v.Receipts, v.Operations, v.Faults, v.Crashes)
	if v.Ticks < 20 || v.Receipts < 20 || v.Operations < 40 || len(v.Faults) == 0 {
		t.Errorf("so few show nothing")
	}
	for _, e := range v.Examples {
		t.Errorf("%s %s: %s", e.Rule, e.Key, e.What)
		for _, line := range e.History {
			t.Log(line)
		}
	}
}
