package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// Any process reports how many requests to a tenant's endpoints are in flight, and how many requests it serves itself.
func TestQuotasTellWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	token := s.mint(t, "acme", tenants.TenantScopes()...)
	came, end := make(chan struct{}, 2), make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		came <- struct{}{}
		<-end
	}))
	t.Cleanup(hook.Close)
	used := func() map[string]int {
		t.Helper()
		status, body := s.send(t, client, token, "GET", "/v1/quotas", "", "")
		var said tenants.QuotasAnswer
		if err := json.Unmarshal(body, &said); status != 200 || err != nil {
			t.Fatalf("got %d %s, %v", status, body, err)
		}
		n := map[string]int{}
		for name, one := range said.Quotas {
			if one.Used != nil {
				n[name] = *one.Used
			}
		}
		return n
	}
	until := func(requests, busiest int) {
		t.Helper()
		for deadline := time.Now().Add(inTime); ; <-time.After(100 * time.Millisecond) {
			n := used()
			if n["running"] == requests && n["running_per_endpoint"] == busiest {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("got %v, want %d in flight and %d to one endpoint", n, requests, busiest)
			}
		}
	}
	if n := used(); n["running"] != 0 || n["concurrent_requests"] != 1 || n["concurrent_polls"] != 0 || n["concurrent_bulk"] != 0 {
		t.Errorf("got %v before anything runs but the question", n)
	}
	for _, name := range []string{"a", "b"} {
		s.expect(t, client, token, "PUT", "/v1/endpoints/"+name, `{"url": "`+hook.URL+`"}`, 201, "")
		s.expect(t, client, token, "PUT", "/v1/workflows/"+name, `{"endpoint": "`+name+`"}`, 201, "")
		s.expect(t, client, token, "PUT", "/v1/workflows/"+name+"/schedules/k", `{"spec": {"cron": "0 0 1 1 *"}, "delivery": {"timeout": "10m"}}`, 201, "")
		s.expect(t, client, token, "POST", "/v1/workflows/"+name+"/schedules/k/trigger", `{}`, 202, "")
	}
	<-came
	<-came
	until(2, 1)
	close(end)
	until(0, 0)
}
