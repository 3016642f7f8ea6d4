package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

const (
	slow  = 1 // the tenant whose statements wait for a lock
	brisk = 2 // the tenant whose statements are quick
)

// crowd is a TenantPool of eight connections, and statements of the tenant slow that wait for a lock which the test holds.
type crowd struct {
	*testing.T
	tenants *postgres.TenantPool
	pool    *pgxpool.Pool // the test's own
	ended   sync.WaitGroup
	errs    chan error
	unlock  func()
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	url := postgrestest.URL(t)
	api, err := postgres.Open(t.Context(), url, postgres.Options{MaxConns: 8, Role: postgres.APIRole})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	c := &crowd{T: t, tenants: postgres.NewTenantPool(api), errs: make(chan error, 100)}
	if c.pool, err = postgres.Open(t.Context(), url, postgres.Options{MaxConns: 2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.pool.Close)
	conn, err := c.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	c.unlock = sync.OnceFunc(func() {
		if _, err := conn.Exec(context.WithoutCancel(t.Context()), `SELECT pg_advisory_unlock(7)`); err != nil {
			t.Error(err)
		}
		conn.Release()
	})
	t.Cleanup(func() { c.unlock(); c.ended.Wait() })
	return c
}

// start starts n concurrent statements of a tenant. Each waits for the lock until limit has passed.
func (c *crowd) start(tenant int32, n int, limit time.Duration) {
	for range n {
		c.ended.Go(func() {
			ctx, cancel := context.WithTimeout(postgres.ForTenant(context.WithoutCancel(c.Context()), tenant), limit)
			defer cancel()
			_, err := c.tenants.Exec(ctx, `SELECT pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7)`)
			c.errs <- err
		})
	}
}

// blocked waits until n statements wait for the lock in PostgreSQL, and further ones wait for a connection.
func (c *crowd) blocked(n int) {
	c.Helper()
	var got int
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		err := c.pool.QueryRow(c.Context(), `
			SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&got)
		if err != nil {
			c.Fatal(err)
		}
		if got == n && c.tenants.Waiting() {
			return
		}
	}
	c.Fatalf("%d statements wait for the lock, want %d", got, n)
}

// answered fails the test if one of n statements of a tenant gets no connection.
func (c *crowd) answered(tenant int32, n int) {
	c.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(postgres.ForTenant(c.Context(), tenant), 20*time.Second)
			defer cancel()
			var got string
			if err := c.tenants.QueryRow(ctx, whose).Scan(&got); err != nil || got != fmt.Sprint(tenant) {
				c.Errorf("tenant %d: got %q, %v", tenant, got, err)
			}
		})
	}
	all.Wait()
}

func TestATenantHoldsAtMostHalfOfTheConnectionsWhileOthersUseThem(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.answered(brisk, 1)
	c.start(slow, 20, time.Minute)
	c.blocked(4)
	for range 20 {
		c.answered(brisk, 10)
	}
	c.blocked(4)
	c.unlock()
	c.ended.Wait()
	for range 20 {
		if err := <-c.errs; err != nil {
			t.Error(err)
		}
	}
}

func TestALoneTenantUsesAllConnectionsButOne(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.start(slow, 20, time.Minute)
	c.blocked(7)
	c.answered(brisk, 10)
	for tenant := range int32(20) {
		c.answered(10+tenant, 1)
	}
}

// Two slow tenants leave connections for a third.
func TestSlowTenantsTogetherLeaveAConnectionToOthers(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.answered(brisk, 1)
	c.start(slow, 20, time.Minute)
	c.blocked(4)
	c.start(slow+10, 20, time.Minute)
	c.blocked(7)
	c.answered(brisk, 10)
}

func TestAStatementWaitsForItsShareForHalfOfItsTime(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.answered(brisk, 1)
	c.start(slow, 4, time.Minute)
	c.start(slow, 10, time.Second) // those without a connection give up
	for range 6 {
		if err := <-c.errs; !errors.Is(err, postgres.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	c.unlock()
	c.ended.Wait()
	c.answered(slow, 20) // the calls that gave up hold no connection
}
