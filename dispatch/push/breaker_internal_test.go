package push

import (
	"testing"
	"time"
)

func TestBreakerHoldsAndProbes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	b := &breaker{}
	for i := range breakerFailures {
		if b.blocks(now) != 0 {
			t.Fatalf("it blocks after %d failures", i)
		}
		if opened := b.failed(now); opened != (i == breakerFailures-1) {
			t.Fatalf("failure %d opened it: %t", i+1, opened)
		}
	}
	for _, wait := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		wait *= time.Second
		if held := b.blocks(now); held < wait || held > wait*3/2 {
			t.Errorf("held for %s, want %s", held, wait)
		}
		b.failed(now) // one that was under way changes nothing
		now = now.Add(wait)
		if b.blocks(now) != 0 {
			t.Fatalf("after %s nothing is let through", wait)
		}
		b.sends(now)
		if b.blocks(now) == 0 {
			t.Fatal("a second one is let through")
		}
		b.failed(now)
	}
	if (*breaker)(nil).blocks(now) != 0 {
		t.Error("without a failure it blocks")
	}
}
