package dispatch_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/schedules/policy"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
)

func everySecond() schedules.Params {
	return schedules.Params{
		Spec:    calendar.Spec{Timezone: "Asia/Kathmandu", Intervals: []calendar.Interval{{Every: "1s"}}},
		Payload: web.Raw(`{"a": 1.00000000000000000001}`),
	}
}

// handed is what a worker is handed, as a client reads it.
type handed struct {
	TickID        string          `json:"tick_id"`
	Workflow      string          `json:"workflow"`
	Key           string          `json:"key"`
	Timestamp     time.Time       `json:"timestamp"`
	LocalTime     string          `json:"local_time"`
	LastTimestamp *time.Time      `json:"last_timestamp"`
	Upcoming      []time.Time     `json:"upcoming"`
	FiredAt       time.Time       `json:"fired_at"`
	Attempt       int             `json:"attempt"`
	MaxAttempts   int             `json:"max_attempts"`
	Occurrence    *int64          `json:"occurrence"`
	Cause         string          `json:"cause"`
	LeaseToken    string          `json:"lease_token"`
	Payload       json.RawMessage `json:"payload"`
}

func (h *house) lease(workflow string, most int) []handed {
	h.t.Helper()
	body, err := h.dispatch.Leases.Lease(h.t.Context(), h.tenant, lease.LeaseParams{Workflows: []string{workflow}, Max: &most, Wait: "1m", Worker: "w"}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	var answer struct{ Ticks []handed }
	if err := json.Unmarshal(body, &answer); err != nil {
		h.t.Fatalf("%v in %s", err, body)
	}
	return answer.Ticks
}

func TestPulledTicksComeInOrderOnceEach(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	p := everySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	h.put("pulled", "user/1", p)
	var got []handed
	for len(got) < 3 {
		ticks := h.lease("pulled", 10)
		for _, one := range ticks {
			r, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete", Result: web.Raw(`{"ok":true}`)}})
			if err != nil || r[0] != lease.Done {
				t.Fatalf("finish: %v, %v", r, err)
			}
		}
		got = append(got, ticks...)
	}
	checkSequence(t, got)
	if string(got[0].Payload) != `{"a": 1.00000000000000000001}` || got[0].Key != "user/1" {
		t.Errorf("got %+v", got[0])
	}
	again, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: got[0].TickID, LeaseToken: got[0].LeaseToken, Outcome: "complete"}})
	if err != nil || again[0] != lease.Lost {
		t.Errorf("a second finish: got %v, %v, want Lost", again, err)
	}
	for i, one := range h.history("pulled", "user/1")[:3] {
		if one.State != "succeeded" || one.TickID != got[i].TickID || string(one.Result) != `{"ok":true}` {
			t.Errorf("tick %d: got %+v", i, one)
		}
	}
}

// checkSequence holds ticks of one schedule that fires each second to what every tick promises.
func checkSequence(t *testing.T, got []handed) {
	t.Helper()
	for i, one := range got {
		if one.FiredAt.Before(one.Timestamp) {
			t.Errorf("tick %d fired at %s, before %s", i, one.FiredAt, one.Timestamp)
		}
		if one.Occurrence == nil || *one.Occurrence != int64(i+1) {
			t.Errorf("tick %d: occurrence %v", i, one.Occurrence)
		}
		if i == 0 {
			if one.LastTimestamp != nil {
				t.Errorf("the first tick has last_timestamp %s", one.LastTimestamp)
			}
			continue
		}
		if one.LastTimestamp == nil || !one.LastTimestamp.Equal(got[i-1].Timestamp) {
			t.Errorf("tick %d: last_timestamp %v, want %s", i, one.LastTimestamp, got[i-1].Timestamp)
		}
		if !got[i-1].Upcoming[0].Equal(one.Timestamp) {
			t.Errorf("tick %d at %s, but the one before announced %s", i, one.Timestamp, got[i-1].Upcoming[0])
		}
	}
}

// catcher is an endpoint that keeps what it is sent.
type catcher struct {
	*httptest.Server
	mu     sync.Mutex
	got    []handed
	errs   []error
	answer func(n int, w http.ResponseWriter)
	wait   func(n int)
	hook   *standardwebhooks.Webhook
}

func (h *house) catcher(workflow string, batch int16, answer func(n int, w http.ResponseWriter)) *catcher {
	h.t.Helper()
	c := &catcher{answer: answer}
	c.Server = httptest.NewServer(c)
	h.t.Cleanup(c.Close)
	e, made, err := h.dispatch.Pusher.PutEndpoint(h.t.Context(), h.tenant, workflow, push.EndpointParams{URL: c.URL + "/hook", Batch: &batch})
	if err != nil || !made {
		h.t.Fatalf("endpoint: %v, %v", made, err)
	}
	c.mu.Lock()
	c.hook, err = standardwebhooks.NewWebhook(e.Secret)
	c.mu.Unlock()
	if err != nil {
		h.t.Fatal(err)
	}
	if _, _, err := h.schedules.PutWorkflow(h.t.Context(), h.tenant, workflow, schedules.WorkflowParams{Endpoint: &workflow}); err != nil {
		h.t.Fatal(err)
	}
	return c
}

// hang has each request wait after it was caught.
func (c *catcher) hang(wait func(n int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = wait
}

func (c *catcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	n, wait := c.catch(w, r, body, err)
	if wait != nil {
		wait(n)
	}
}

func (c *catcher) catch(w http.ResponseWriter, r *http.Request, body []byte, err error) (n int, wait func(int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		err = c.hook.Verify(body, r.Header)
	}
	var batch struct{ Ticks []handed }
	var one handed
	if err == nil {
		err = json.Unmarshal(body, &batch)
	}
	if err == nil && batch.Ticks == nil {
		err = json.Unmarshal(body, &one)
		batch.Ticks = []handed{one}
	}
	if err != nil {
		c.errs = append(c.errs, err)
	}
	c.got = append(c.got, batch.Ticks...)
	if c.answer != nil {
		c.answer(len(c.got), w)
	}
	return len(c.got), c.wait
}

func (c *catcher) caught() []handed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]handed(nil), c.got...)
}

func TestPushedTicksAreSignedAndInOrder(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("pushed", 1, nil)
	h.start(h.dispatch)
	h.put("pushed", "k", everySecond())
	until(t, "three ticks were pushed", func() bool { return len(c.caught()) >= 3 })
	if len(c.errs) > 0 {
		t.Fatal(c.errs)
	}
	checkSequence(t, c.caught()[:3])
	until(t, "they have succeeded", func() bool {
		ticks := h.history("pushed", "k")
		return len(ticks) >= 3 && ticks[2].State == "succeeded"
	})
}

func TestFailedPushIsTriedAgainWithTheSameTick(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("flaky", 1, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(500)
		}
	})
	h.start(h.dispatch)
	p := everySecond()
	p.Spec = calendar.Spec{At: []string{time.Now().UTC().Add(2 * time.Second).Format("2006-01-02T15:04:05")}}
	h.put("flaky", "k", p)
	until(t, "it was pushed twice", func() bool { return len(c.caught()) == 2 })
	got := c.caught()
	if got[0].TickID != got[1].TickID || got[1].Attempt != 2 || string(got[0].Payload) != string(got[1].Payload) {
		t.Errorf("got %+v and then %+v", got[0], got[1])
	}
	until(t, "it has succeeded", func() bool { return h.history("flaky", "k")[0].State == "succeeded" })
	one, err := h.dispatch.Reader.Tick(t.Context(), h.tenant, got[0].TickID)
	if err != nil || len(one.Attempts) != 2 || one.Attempts[0].Outcome != "failed" || *one.Attempts[0].Status != 500 || one.Attempts[1].Outcome != "succeeded" {
		t.Errorf("got %+v, %v", one, err)
	}
}
