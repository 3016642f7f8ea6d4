package tenants

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

func TestTwoProcessesAdmitTheRate(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	rate := Rate{Quota: "requests_per_second", PerSec: 200, Burst: 100}
	var admitted, refused atomic.Int64
	began := time.Now()
	var workers sync.WaitGroup
	for range 2 { // processes
		b := NewBuckets(pool)
		for range 4 {
			workers.Go(func() {
				for time.Since(began) < 3*time.Second {
					_, wait, err := b.Take(t.Context(), 1, rate, 1)
					if err != nil {
						t.Error(err)
						return
					}
					if wait > 0 {
						refused.Add(1)
						<-time.After(time.Millisecond) // a client that asks far more often than it may
						continue
					}
					admitted.Add(1)
				}
			})
		}
	}
	workers.Wait()
	took := time.Since(began).Seconds()
	want := 200*took + 100
	if got := float64(admitted.Load()); got < want*0.8 || got > want*1.1+2*20 || refused.Load() == 0 {
		t.Errorf("got %v admitted and %d refused in %.1f s, want about %v", got, refused.Load(), took, want)
	}
}

func TestABucketHoldsItsBurstAndNoMore(t *testing.T) {
	t.Parallel()
	b := NewBuckets(postgrestest.Database(t))
	clock := time.Now()
	b.now = func() time.Time { return clock }
	rate := Rate{Quota: "upserts_per_second", PerSec: 1, Burst: 20} // so slow that nothing is filled while this runs
	for n := range 20 {
		left, wait, err := b.Take(t.Context(), 1, rate, 1)
		if err != nil || wait > 0 || left != 19-n {
			t.Fatalf("token %d: got %d left, wait %s, %v", n, left, wait, err)
		}
	}
	_, wait, err := b.Take(t.Context(), 1, rate, 1)
	if err != nil || wait <= 0 || wait > time.Second {
		t.Errorf("got %s to wait, %v", wait, err)
	}
	if _, wait, err := b.Take(t.Context(), 2, rate, 1); err != nil || wait != 0 {
		t.Errorf("another tenant waits %s, %v", wait, err)
	}
	if _, wait, err := b.Take(t.Context(), 1, Rate{Quota: "other", PerSec: 1, Burst: 20}, 1); err != nil || wait != 0 {
		t.Errorf("another quota waits %s, %v", wait, err)
	}
}

func TestWaitGivesMoreThanTheBucketHolds(t *testing.T) {
	t.Parallel()
	b := NewBuckets(postgrestest.Database(t))
	began := time.Now()
	if err := b.Wait(t.Context(), 1, Rate{Quota: "upserts_per_second", PerSec: 1000, Burst: 100}, 600); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 450*time.Millisecond {
		t.Errorf("600 at 1000 a second with a burst of 100 took %s", took)
	}
}
