package once_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

func TestApart(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant, runs := addTenant(t, pool, "mine"), 0
	failed := errors.New("not this time")
	send := func(key, body string, work func() (made, error)) (made, bool, error) {
		return once.Apart(t.Context(), pool, tenant, post("/a", key, body), time.Minute, work)
	}
	work := func() (made, error) { runs++; return made{N: runs}, nil }
	check := func(key, body string, want int, wantReplayed bool) {
		t.Helper()
		if v, replayed, err := send(key, body, work); err != nil || v.N != want || replayed != wantReplayed {
			t.Errorf("%s: got %+v %v %v, want %d %v", key, v, replayed, err, want, wantReplayed)
		}
	}
	check("", "", 1, false)
	check("", "", 2, false)
	check("k", "x", 3, false)
	check("k", "x", 3, true)
	if _, _, err := send("k", "y", work); codeOf(err) != "idempotency_key_reused" {
		t.Errorf("got %v for another body", err)
	}
	if _, _, err := send("l", "", func() (made, error) { return made{}, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	check("l", "", 4, false)
	_, _, err := send("m", "", func() (made, error) {
		if _, _, err := send("m", "", work); codeOf(err) != "idempotency_in_flight" {
			t.Errorf("got %v while in flight", err)
		}
		// The claim expires, as if its process had crashed, and another request does the work.
		if _, err := pool.Exec(t.Context(), `UPDATE idempotency SET created_at = now() - interval '61 s' WHERE key = 'm'`); err != nil {
			t.Fatal(err)
		}
		check("m", "", 5, false)
		return made{N: -1}, nil
	})
	if err != nil {
		t.Error(err)
	}
	check("m", "", 5, true)
	if _, err := pool.Exec(t.Context(), `UPDATE idempotency SET created_at = now() - interval '24 hours 1 second'`); err != nil {
		t.Fatal(err)
	}
	check("k", "y", 6, false)
}

// A client that goes away during the work finds its value when it asks again.
func TestApartStoresTheValueOfAClientThatIsGone(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant := addTenant(t, pool, "mine")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if _, _, err := once.Apart(ctx, pool, tenant, post("/a", "k", ""), time.Minute, func() (int, error) { leave(); return 7, nil }); err != nil {
		t.Fatal(err)
	}
	v, replayed, err := once.Apart(t.Context(), pool, tenant, post("/a", "k", ""), time.Minute, func() (int, error) { return 8, nil })
	if err != nil || v != 7 || !replayed {
		t.Errorf("got %d %v %v", v, replayed, err)
	}
}

func TestRequestsAtOnceDoTheWorkOnce(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant := addTenant(t, pool, "mine")
	var runs atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				v, _, err := once.Apart(t.Context(), pool, tenant, post("/a", "k", ""), time.Minute, func() (int32, error) { return runs.Add(1), nil })
				if codeOf(err) == "idempotency_in_flight" {
					continue
				}
				if err != nil || v != 1 {
					t.Errorf("got %d %v", v, err)
				}
				return
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("the work was done %d times", runs.Load())
	}
}
