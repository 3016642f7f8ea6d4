package rate_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/dispatch/rate"
)

var start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// Over any 10 s at most 2 % more than the rate goes out, whenever tokens are asked for. While there are always enough requests, at most
// 2 % less goes out.
func TestABucketKeepsItsRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rate.Rate{PerSecond: rapid.IntRange(50, 100_000).Draw(t, "rate")}
		steady := rapid.Bool().Draw(t, "steady")
		var b rate.Bucket
		type spent struct {
			at time.Time
			n  int
		}
		var all []spent
		for now := start; now.Before(start.Add(30 * time.Second)); {
			b.Fill(r, now)
			all = append(all, spent{now, b.Spend(rapid.SampledFrom([]int{1 << 30, 3, r.PerSecond}).Draw(t, "want"))})
			most := 5000
			if steady {
				all[len(all)-1].n += b.Spend(1 << 30)
				most = 90
			}
			now = now.Add(time.Duration(rapid.IntRange(10, most).Draw(t, "step")) * time.Millisecond)
		}
		for i, from := range all {
			n := 0
			for _, s := range all[i:] {
				if s.at.Before(from.at.Add(10 * time.Second)) {
					n += s.n
				}
			}
			most := 10 * float64(r.PerSecond)
			if float64(n) > 1.02*most+1 {
				t.Fatalf("%d went out within 10 s at a rate of %d", n, r.PerSecond)
			}
			whole := !from.at.Add(10 * time.Second).After(all[len(all)-1].at)
			if steady && whole && float64(n) < 0.98*most-1 {
				t.Fatalf("only %d went out within 10 s at a rate of %d", n, r.PerSecond)
			}
		}
	})
}

// After a pause the rate rises evenly from a tenth.
func TestARampRisesAfterAPause(t *testing.T) {
	t.Parallel()
	r := rate.Rate{PerSecond: 1000, Ramp: 10 * time.Second}
	var b rate.Bucket
	run := func(from time.Time, seconds int) (perSecond []int) {
		for s := range seconds {
			n := 0
			for ms := 0; ms < 1000; ms += 20 {
				b.Fill(r, from.Add(time.Duration(s)*time.Second+time.Duration(ms)*time.Millisecond))
				n += b.Spend(1 << 30)
			}
			perSecond = append(perSecond, n)
		}
		return perSecond
	}
	for _, from := range []time.Time{start, start.Add(2 * time.Minute)} {
		for s, n := range run(from, 15) {
			want := 1000.0
			if s < 10 {
				want = 100 + 900*(float64(s)+0.5)/10
			}
			if d := float64(n) - want; d < -25 || d > 25 {
				t.Errorf("second %d after the pause: %d, want about %.0f", s, n, want)
			}
		}
	}
	b.Fill(r, start.Add(2*time.Minute+15*time.Second+50*time.Second))
	if n := b.Spend(1 << 30); n != 100 {
		t.Errorf("after less than a minute: %d at once, want 100", n)
	}
}

// A rate of a few ticks a second lets one out at a time. A debt is paid first, and one of more than a minute is forgiven.
func TestLowRatesAndDebts(t *testing.T) {
	t.Parallel()
	r := rate.Rate{PerSecond: 2}
	var b rate.Bucket
	b.Fill(r, start)
	if n := b.Spend(10); n != 1 {
		t.Errorf("at first: %d", n)
	}
	if wait := b.Wait(r); wait != 500*time.Millisecond {
		t.Errorf("the next one comes in %s", wait)
	}
	b.Tokens -= 1_000_000
	b.Fill(r, start.Add(time.Second))
	if b.Tokens != -120 {
		t.Errorf("the debt is %g", -b.Tokens)
	}
	if n := b.Spend(1); n != 0 {
		t.Errorf("%d went out on credit", n)
	}
}
