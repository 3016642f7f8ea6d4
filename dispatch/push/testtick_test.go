package push_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
)

func TestATestTickIsNoTick(t *testing.T) {
	t.Parallel()
	h, r := dispatchtest.New(t), dispatchtest.NewReceiver(t)
	c := h.Open(h.Dispatch).Operator()
	const path = "/v1/endpoints/e"
	made := dispatchtest.Get[push.Endpoint](c, 201, "PUT", path, `{"url": "`+r.URL+`", "headers": {"X-Team": "growth"}}`)
	trial := dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", "")
	sent := r.Last(t)
	if trial.Status == nil || *trial.Status != 204 || trial.Error != nil || trial.TookMS < 0 || trial.WebhookID != sent.Header.Get("Webhook-Id") {
		t.Errorf("got %+v", trial)
	}
	var tick dispatchtest.Handed
	if err := json.Unmarshal(sent.Body, &tick); err != nil {
		t.Fatalf("%v in %s", err, sent.Body)
	}
	if !strings.HasPrefix(tick.TickID, "test_") || tick.TickID != trial.WebhookID || tick.Cause != "manual" || tick.Workflow != "test" || string(tick.Payload) != "null" ||
		tick.Attempt != 1 || tick.Occurrence != nil || sent.Header.Get("X-Team") != "growth" || sent.SignedBy(t, made.Secret) != "yes" {
		t.Errorf("got %s with %v", sent.Body, sent.Header)
	}
	c.Refused(404, "not_found", "", "GET", "/v1/ticks/"+tick.TickID, "")
	c.Refused(404, "not_found", "", "POST", "/v1/ticks/"+tick.TickID+"/complete", `{"lease_token": "test"}`)
	if n := h.Number(`SELECT count(*) FROM tick`); n != 0 {
		t.Errorf("%d ticks are in the history", n)
	}
	if again := dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", ""); again.WebhookID == trial.WebhookID {
		t.Error("two tests have one id")
	}
}

func TestATestTickIsSentOnceAKey(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	var sent atomic.Int32
	came, end := make(chan struct{}, 1), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		came <- struct{}{}
		<-end
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(slow.Close)
	c := h.Open(h.Dispatch).Operator()
	dispatchtest.Get[push.Endpoint](c, 201, "PUT", "/v1/endpoints/e", `{"url": "`+slow.URL+`"}`)
	const path = "/v1/endpoints/e/test"
	first := make(chan push.Trial)
	go func() {
		defer close(first)
		a := c.Do("POST", path, "", "Idempotency-Key", "one")
		var trial push.Trial
		if err := json.Unmarshal(a.Body, &trial); err != nil || a.Status != 200 {
			t.Errorf("got %d %s", a.Status, a.Body)
		}
		first <- trial
	}()
	<-came
	c.Refused(409, "idempotency_in_flight", "", "POST", path, "", "Idempotency-Key", "one")
	close(end)
	trial := <-first
	if again := dispatchtest.Get[push.Trial](c, 200, "POST", path, "", "Idempotency-Key", "one"); again.WebhookID != trial.WebhookID || trial.WebhookID == "" {
		t.Errorf("got %+v, then %+v", trial, again)
	}
	if n := sent.Load(); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
	dispatchtest.Get[push.Trial](c, 200, "POST", path, "", "Idempotency-Key", "two")
	c.Refused(404, "not_found", "", "POST", "/v1/endpoints/none/test", "", "Idempotency-Key", "one")
	if n := h.Number(`SELECT count(*) FROM idempotency WHERE status = 0`); n != 0 {
		t.Errorf("%d keys are still claimed", n)
	}
}

func TestATestTickTellsWhatTheEndpointSaid(t *testing.T) {
	t.Parallel()
	h, r := dispatchtest.New(t), dispatchtest.NewReceiver(t)
	c := h.Open(h.Dispatch).Operator()
	const path = "/v1/endpoints/e"
	for _, x := range []struct {
		state, text string
		batch       string
		status      int32
		err         string
	}{
		{"enabled", "no such page", "1", 404, "the endpoint answered 404: no such page"},
		{"held", "", "1", 202, ""},
		{"disabled", "", "1", 200, ""},
		{"enabled", "", "1", 302, "the endpoint answered 302:"},
		{"enabled", "", "1", 410, "the endpoint answered 410:"},
		{"enabled", "", "1", 500, "the endpoint answered 500:"},
		{"enabled", "", "9", 200, ""},
		{"enabled", `{"results": []}`, "9", 200, "the answer to the batch does not name the tick"},
	} {
		if a := c.Do("PUT", path, `{"url": "`+r.URL+`", "batch": `+x.batch+`, "state": "`+x.state+`"}`); a.Status > 201 {
			t.Fatalf("got %d %s", a.Status, a.Body)
		}
		r.Answers(int(x.status), x.text)
		trial := dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", "")
		said := ""
		if trial.Error != nil {
			said = *trial.Error
		}
		if trial.Status == nil || *trial.Status != x.status || strings.TrimSpace(said) != x.err {
			t.Errorf("%+v: got %v %q", x, trial.Status, said)
		}
		if got := dispatchtest.Get[push.Endpoint](c, 200, "GET", path, ""); got.State != x.state {
			t.Errorf("%+v: its state is %s", x, got.State)
		}
	}
	if body := r.Last(t).Body; !strings.HasPrefix(string(body), `{"ticks":[{"tick_id":"test_`) {
		t.Errorf("an endpoint that takes batches got %s", body)
	}
	r.Close()
	trial := dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", "")
	if trial.Status != nil || trial.Error == nil || !strings.Contains(*trial.Error, "refused") {
		t.Errorf("got %+v", trial)
	}
}

// A failure of ours is not the endpoint's: no test tick was sent, and nothing of our network is told.
func TestATestTickThatWeCannotSendIsNoFailureOfTheEndpoint(t *testing.T) {
	t.Parallel()
	h, r := dispatchtest.New(t), dispatchtest.NewReceiver(t)
	h.Config.Outbound.Proxy = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} // nobody listens
	h.Dispatch = h.Process()
	c := h.Open(h.Dispatch).Operator()
	dispatchtest.Get[push.Endpoint](c, 201, "PUT", "/v1/endpoints/e", `{"url": "`+r.URL+`"}`)
	for range 2 { // the key is free again
		a := c.Do("POST", "/v1/endpoints/e/test", "", "Idempotency-Key", "one")
		if a.Status != 503 || !strings.Contains(string(a.Body), `"unavailable"`) || strings.Contains(string(a.Body), "127.0.0.1") || strings.Contains(string(a.Body), "proxy") {
			t.Errorf("got %d %s", a.Status, a.Body)
		}
	}
}

// An endpoint may close a connection that was kept open just when it is used again: that is no failure of a tick.
func TestAConnectionThatWentStaleCostsNoAttempt(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	type key struct{}
	endpoint := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(key{}).(*atomic.Int32).Add(1) == 1 {
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}))
	endpoint.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, key{}, new(atomic.Int32))
	}
	endpoint.Start()
	t.Cleanup(endpoint.Close)
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, "e", push.EndpointParams{URL: endpoint.URL}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if trial, err := h.Dispatch.Pusher.Endpoints.TryEndpoint(t.Context(), h.Tenant, "e"); err != nil || trial.Error != nil {
			t.Fatalf("got %+v, %v", trial, err)
		}
	}
}

// An endpoint that reads a request and closes the connection without an answer gets at most two requests of one attempt, however
// many connections to it are kept open.
func TestAnAttemptIsAtMostTwoRequests(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const kept = 30
	var cuts atomic.Bool
	var came, gone atomic.Int32
	all := make(chan struct{})
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !cuts.Load() {
			if came.Add(1) == kept {
				close(all)
			}
			<-all // so that each has a connection of its own
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the cut is the same if that fails
		gone.Add(1)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}))
	t.Cleanup(endpoint.Close)
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, "e", push.EndpointParams{URL: endpoint.URL}); err != nil {
		t.Fatal(err)
	}
	var trials sync.WaitGroup
	for range kept {
		trials.Go(func() {
			if trial, err := h.Dispatch.Pusher.Endpoints.TryEndpoint(t.Context(), h.Tenant, "e"); err != nil || trial.Error != nil {
				t.Errorf("got %+v, %v", trial, err)
			}
		})
	}
	trials.Wait()
	cuts.Store(true)
	trial, err := h.Dispatch.Pusher.Endpoints.TryEndpoint(t.Context(), h.Tenant, "e")
	if err != nil || trial.Error == nil {
		t.Errorf("got %+v, %v, want a failure", trial, err)
	}
	if n := gone.Load(); n < 1 || n > 2 {
		t.Errorf("%d requests were made, with %d connections kept open", n, kept)
	}
}

func TestATestTickGoesToPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	h, r := dispatchtest.New(t), dispatchtest.NewReceiver(t)
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, "e", push.EndpointParams{URL: r.URL}); err != nil {
		t.Fatal(err)
	}
	h.Config.Outbound.Loopback = false
	trial := dispatchtest.Get[push.Trial](h.Open(h.Process()).Operator(), 200, "POST", "/v1/endpoints/e/test", "")
	if trial.Status != nil || trial.Error == nil || len(r.Requests()) != 0 {
		t.Errorf("got %+v, and %d requests", trial, len(r.Requests()))
	}
}
