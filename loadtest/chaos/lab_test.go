package chaos

import (
	"testing"
	"time"
)

// A campaign of about a minute with every part: nothing is lost, doubled or early. The test checks no durations, because they depend on
// the machine.
func TestACampaign(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	binary, err := Build(ctx, t.TempDir(), "fault", false)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Run(ctx, Options{
		Seed: 1, For: 25 * time.Second, Tenants: 2, Schedules: 40, Pause: time.Second, Calm: 1500 * time.Millisecond, Faulty: 2, Drain: 6 * time.Minute,
		Binary: binary, Say: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d ticks, %d receipts, %d operations, faults %v, crashes %v", v.Ticks, v.Receipts, v.Operations, v.Faults, v.Crashes)
	if v.Ticks == 0 || v.Receipts == 0 || len(v.Faults) == 0 {
		t.Error("so few show nothing")
	}
	for _, e := range v.Examples {
		t.Errorf("%s %s: %s", e.Rule, e.Key, e.What)
		for _, line := range e.History {
			t.Log(line)
		}
	}
}
