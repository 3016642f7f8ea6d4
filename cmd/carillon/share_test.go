package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// Twenty requests of a tenant wait for a row in PostgreSQL. They take half of the connections; the requests of another
// tenant are answered, and only the first tenant is told to try again.
func TestSlowRequestsOfATenantHoldUpNoOther(t *testing.T) {
	t.Parallel()
	s, client := serveAs(t, func(p *options) { p.connections, p.shed = 24, shedByPool }), checked(t) // eight are the API's
	platform := s.mint(t, "", tenants.PlatformAdmin)
	s.expect(t, client, platform, "PUT", "/v1/platform/tenants/shop", `{}`, 201, "")
	slow, brisk := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "shop", tenants.TenantAdmin)
	s.expect(t, client, slow, "PUT", "/v1/subjects/ann", `{"timezone": "Europe/Berlin"}`, 201, "")
	s.expect(t, client, brisk, "PUT", "/v1/workflows/w", `{}`, 201, "")

	held, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), `SELECT FROM subject_profile WHERE subject = 'ann' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	var asked sync.WaitGroup
	stop, refused := make(chan struct{}), make(chan struct{}, 1)
	for range 20 {
		asked.Go(func() {
			for open := true; open; {
				status, answer := s.send(t, client, slow, "PUT", "/v1/subjects/ann", "application/json", `{"timezone": "Asia/Tokyo"}`)
				if status != http.StatusOK && status != http.StatusServiceUnavailable {
					t.Errorf("a slow request: got %d %s", status, answer)
				}
				if strings.Contains(string(answer), "too many requests wait") {
					select {
					case refused <- struct{}{}:
					default:
					}
				}
				select {
				case <-stop:
					open = false
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	defer asked.Wait()
	ended := sync.OnceFunc(func() { close(stop) })
	defer ended()
	s.await(t, "carillon api", 4)
	refusals := 0
	answered := func(path string) {
		// On a busy machine some requests wait so long for connections that the process sheds the next ones.
		for status := 0; status != http.StatusOK; {
			var answer []byte
			if status, answer = s.send(t, client, brisk, "GET", path, "", ""); status == http.StatusServiceUnavailable {
				refusals++
			} else if status != http.StatusOK {
				t.Fatalf("%s: got %d %s", path, status, answer)
			}
			if refusals > 50 {
				t.Fatalf("half of the other tenant's requests are refused: %s", answer)
			}
		}
	}
	for range 50 {
		answered("/v1/schedules")
		answered("/v1/workflows/w")
	}
	for deadline := time.Now().Add(inTime); ; <-time.After(5 * time.Millisecond) { // the tenant's lists are refused while its requests wait
		if status, _ := s.send(t, client, slow, "GET", "/v1/schedules", "", ""); status == http.StatusServiceUnavailable {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no list of the slow tenant was shed")
		}
	}
	select {
	case <-refused: // a request that waited for its tenant's share has given up
	case <-time.After(inTime):
		t.Error("no request gave up waiting for a connection")
	}
	s.await(t, "carillon api", 4)
	answered("/v1/schedules")
	ended()
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked.Wait()
	s.expect(t, client, slow, "GET", "/v1/subjects/ann", "", 200, "")
}

// await waits until n sessions of a pool wait for a lock.
func (s whole) await(t *testing.T, name string, n int) {
	t.Helper()
	var got int
	for deadline := time.Now().Add(inTime); got != n; <-time.After(5 * time.Millisecond) {
		err := s.pool.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock'`, name).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions wait for a lock, want %d", got, n)
		}
	}
}
