package web

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
)

// someRows are rows that a query returns.
type someRows struct {
	pgx.Rows
	left int
}

func (r *someRows) Next() bool { r.left--; return r.left >= 0 }
func (*someRows) Err() error   { return nil }
func (*someRows) Close()       {}

// asTenant returns the context of a request.
func asTenant(ctx context.Context, b *Budget, tenant int32) context.Context {
	b.turns.saw(tenant, time.Now())
	return context.WithValue(ctx, accountKey, &account{budget: b, tenant: tenant})
}

// reader reads pages whose queries wait until they are released.
type reader struct {
	budget  *Budget
	begun   chan int32 // the tenant of each query that has begun
	release chan struct{}
	ended   chan error
}

func newReader() *reader {
	b := NewBudget(0)
	b.turns, b.pages = &turns{free: 1}, &pages{most: 1, byTenant: map[int32]*tenantPages{}}
	return &reader{b, make(chan int32, 10), make(chan struct{}), make(chan error, 10)}
}

// read reads a page of n rows with texts of size bytes.
func (r *reader) read(ctx context.Context, tenant int32, n, size int) {
	query := func() (pgx.Rows, error) {
		r.begun <- tenant
		<-r.release
		return &someRows{left: n}, nil
	}
	go func() {
		_, _, err := Collect(asTenant(ctx, r.budget, tenant), n, MostPage, query, func(pgx.CollectableRow) (int, error) { return size, nil }, func(size int) int { return size })
		r.ended <- err
	}()
	synctest.Wait()
}

// want fails unless the queries of these tenants have begun since the last call.
func (r *reader) want(t *testing.T, tenants ...int32) {
	t.Helper()
	synctest.Wait()
	for _, want := range tenants {
		select {
		case got := <-r.begun:
			if got != want {
				t.Errorf("a query of tenant %d has begun, want %d", got, want)
			}
		default:
			t.Errorf("no query of tenant %d has begun", want)
		}
	}
	if n := len(r.begun); n > 0 {
		t.Errorf("%d more queries have begun", n)
	}
}

// allEnd releases all queries, and fails unless n reads end without an error and nothing is remembered of them.
func (r *reader) allEnd(t *testing.T, n int) {
	t.Helper()
	close(r.release)
	for range n {
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	}
	if n := len(r.budget.pages.byTenant); n != 0 {
		t.Errorf("%d tenants are remembered", n)
	}
}

// While other tenants make requests, a tenant reads one large page after another. Its small pages and the pages of others do not wait.
func TestLargePagesOfATenantWaitForOneAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		r.read(t.Context(), 1, 100, 0)
		r.read(t.Context(), 1, 100, 0)
		r.want(t, 1, 1) // nobody else makes requests
		r.release <- struct{}{}
		r.release <- struct{}{}

		r.read(t.Context(), 2, 100, 0)
		for range 3 {
			r.read(t.Context(), 1, 100, 0)
		}
		r.read(t.Context(), 1, manyRows-1, 0)
		r.want(t, 2, 1, 1) // the second of tenant 1 is small
		for range 3 {
			r.release <- struct{}{}
		}
		r.want(t, 1)
		r.release <- struct{}{}
		r.want(t, 1)
		r.allEnd(t, 7)
	})
}

// A large page that would wait for long is refused with 429. One whose request ends gets the error of its context.
func TestALargePageDoesNotWaitForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		r.budget.turns.saw(2, time.Now())
		r.read(t.Context(), 1, 100, 0)
		r.read(t.Context(), 1, 100, 0)
		ctx, cancel := context.WithCancel(t.Context())
		r.read(ctx, 1, 100, 0)
		cancel()
		if err := <-r.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		began := time.Now()
		f, is := errors.AsType[*fault.Error](<-r.ended)
		if !is || f.Status != http.StatusTooManyRequests || f.RetryAfter == 0 || time.Since(began) != longestWait {
			t.Errorf("got %v after %v", f, time.Since(began))
		}
		r.allEnd(t, 1)
	})
}

// Rows with many bytes are read in a turn, and few bytes without one.
func TestManyBytesOfRowsAreReadInATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		close(r.release)
		other := turn{account: &account{budget: r.budget, tenant: 2}}
		if err := other.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.read(t.Context(), 1, 4, 10)
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		r.read(t.Context(), 1, 4, muchWork)
		synctest.Wait()
		if len(r.ended) > 0 {
			t.Error("many bytes are read while another request has the turn")
		}
		other.end()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// After a page with many bytes, the next one of the tenant begins its turn before its query. A slow query gives the turn back.
func TestAPageWithManyBytesQueriesInATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		r.budget.turns.saw(2, time.Now())
		r.read(t.Context(), 1, manyRows, muchWork)
		r.read(t.Context(), 1, manyRows, muchWork)
		r.read(t.Context(), 1, manyRows, 0)
		r.read(t.Context(), 1, manyRows, 0)
		r.want(t, 1)
		if wait := r.waitsForTurn(t); wait != 0 {
			t.Errorf("the query of the first page keeps the turn for %v", wait)
		}
		r.release <- struct{}{}
		r.want(t, 1)
		if wait := r.waitsForTurn(t); wait != longestQuery {
			t.Errorf("the query of the second page keeps the turn for %v, want %v", wait, longestQuery)
		}
		r.release <- struct{}{}
		r.want(t, 1)
		r.release <- struct{}{}
		r.want(t, 1)
		if wait := r.waitsForTurn(t); wait != 0 {
			t.Errorf("the query after a page with few bytes keeps the turn for %v", wait)
		}
		r.allEnd(t, 4)
	})
}

// waitsForTurn returns how long a request of tenant 2 waits for a turn.
func (r *reader) waitsForTurn(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	other := turn{account: &account{budget: r.budget, tenant: 2}}
	if err := other.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.end()
	return time.Since(began)
}
