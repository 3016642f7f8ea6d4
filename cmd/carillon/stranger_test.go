package main

import (
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// madeUpKey returns an API key of the right form that was never issued.
func madeUpKey() string {
	random := rand.Text() + rand.Text()
	return fmt.Sprintf(`{"api_key": "carillon_key_%s%08x"}`, random, crc32.ChecksumIEEE([]byte(random)))
}

// Hanging lookups of API keys hold at most half of the connections for lookups; further ones wait or are refused. Lookups of tenants still
// succeed.
func TestStrangersLeaveConnectionsToTenants(t *testing.T) {
	t.Parallel()
	s, client := serveAs(t, func(p *options) { p.shed = shedByPool }), checked(t)
	platform := s.mint(t, "", tenants.PlatformAdmin)
	for n := range 10 {
		s.expect(t, client, platform, "PUT", fmt.Sprint("/v1/platform/tenants/t", n), `{}`, 201, "")
	}
	held, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), `LOCK TABLE api_key IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	var asked sync.WaitGroup
	stop := make(chan struct{})
	for range 64 {
		asked.Go(func() {
			for {
				status, answer := s.send(t, client, "", "POST", "/v1/token", "application/json", madeUpKey())
				if status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests && status != http.StatusUnauthorized {
					t.Errorf("got %d %s", status, answer)
				}
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	defer asked.Wait()
	ended := sync.OnceFunc(func() { close(stop) })
	defer ended()
	s.await(t, "carillon platform", 2)
	for n := range 10 {
		token := s.mint(t, fmt.Sprint("t", n), tenants.TenantAdmin)
		s.expect(t, client, token, "GET", "/v1/schedules", "", 200, "")
	}
	s.await(t, "carillon platform", 2)
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended()
}

// One address can try a limited number of API keys, and is then refused for a while. A tenant's exchanges count as its requests.
func TestAnAddressTriesSoManyKeys(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	platform, admin := s.mint(t, "", tenants.PlatformAdmin), s.mint(t, "small", tenants.TenantAdmin)
	s.expect(t, client, platform, "PUT", "/v1/platform/tenants/small", `{"quotas": {"requests_per_second": 3}}`, 201, "")
	made := s.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read"]}`, 201, "")
	exchange := fmt.Sprintf(`{"api_key": %q}`, made["key"])
	// While the requests are sent, so many more a second may pass.
	refused := func(tries, perSecond int64, body func() string, want string) {
		t.Helper()
		var found atomic.Bool
		var tried atomic.Int64
		began := time.Now()
		goesOn := func() bool {
			n, took := tried.Add(1), time.Since(began)
			return n <= tries || !found.Load() && took < inTime && n <= tries+int64(took.Seconds()*float64(perSecond))
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for goesOn() {
					status, answer := s.send(t, client, "", "POST", "/v1/token", "application/json", body())
					if status == http.StatusTooManyRequests && strings.Contains(string(answer), want) {
						found.Store(true)
					}
				}
			})
		}
		all.Wait()
		if !found.Load() {
			t.Errorf("none of %d requests was refused: %s", tried.Load(), want)
		}
	}
	refused(40, 3, func() string { return exchange }, "requests_per_second")
	refused(1600, 50, madeUpKey, "come from this address")
	s.expect(t, client, admin, "GET", "/v1/workflows", "", 200, "")
}
