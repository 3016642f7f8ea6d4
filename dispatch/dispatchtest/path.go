package dispatchtest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func EverySecond() schedules.Params {
	return schedules.Params{
		Spec:    calendar.Spec{Timezone: "Asia/Kathmandu", Intervals: []calendar.Interval{{Every: "1s"}}},
		Payload: web.Raw(`{"a": 1.00000000000000000001}`),
	}
}

// EverySecondInOrder hands out a tick of each second, one after the other: none is skipped because the
// one before still runs, and none is missed because the process is late.
func EverySecondInOrder() schedules.Params {
	p := EverySecond()
	p.Policy = &policy.Policy{Overlap: "buffer_all", Missed: "all"}
	return p
}

// Handed is a tick as a worker receives it.
type Handed struct {
	TickID        string            `json:"tick_id"`
	Workflow      string            `json:"workflow"`
	Key           string            `json:"key"`
	Timestamp     time.Time         `json:"timestamp"`
	LocalTime     string            `json:"local_time"`
	LastTimestamp *time.Time        `json:"last_timestamp"`
	Upcoming      []time.Time       `json:"upcoming"`
	FiredAt       time.Time         `json:"fired_at"`
	Attempt       int               `json:"attempt"`
	MaxAttempts   int               `json:"max_attempts"`
	Occurrence    *int64            `json:"occurrence"`
	Cause         string            `json:"cause"`
	Labels        map[string]string `json:"labels"`
	Version       *string           `json:"workflow_version"`
	Expired       *bool             `json:"expired"`
	Traceparent   string            `json:"traceparent"`
	LeaseToken    string            `json:"lease_token"`
	Payload       json.RawMessage   `json:"payload"`
	Header        http.Header       `json:"-"` // of the request
}

// Lease waits up to a minute for ticks of a workflow. A running process does the waiting, if there is
// one, because it is notified when ticks get ready.
func (h *Carillon) Lease(workflow string, most int) []Handed {
	h.T.Helper()
	d := h.Dispatch
	if h.running != nil {
		d = h.running
	}
	body, err := d.Leases.Lease(postgres.ForTenant(h.T.Context(), int32(h.Tenant)), h.Tenant, lease.LeaseParams{Workflows: []string{workflow}, Max: &most, Wait: "1m", Worker: "w"}, nil)
	if err != nil {
		h.T.Fatal(err)
	}
	var answer struct{ Ticks []Handed }
	if err := json.Unmarshal(body, &answer); err != nil {
		h.T.Fatalf("%v in %s", err, body)
	}
	return answer.Ticks
}

// CheckSequence checks the promises of every tick on the first ticks of a schedule of [EverySecondInOrder].
func CheckSequence(t *testing.T, got []Handed) {
	t.Helper()
	for i, one := range got {
		if !one.FiredAt.IsZero() && one.FiredAt.Before(one.Timestamp) {
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

// Catcher is an endpoint that keeps what it is sent.
type Catcher struct {
	*httptest.Server
	mu     sync.Mutex
	Got    []Handed
	Errs   []error
	answer func(n int, w http.ResponseWriter)
	wait   func(n int)
	hook   *standardwebhooks.Webhook
}

func (h *Carillon) Catcher(workflow string, batch int16, answer func(n int, w http.ResponseWriter)) *Catcher {
	h.T.Helper()
	c := &Catcher{answer: answer}
	c.Server = httptest.NewServer(c)
	h.T.Cleanup(c.Close)
	e, made, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(h.T.Context(), h.Tenant, workflow, push.EndpointParams{URL: c.URL + "/hook", Batch: &batch})
	if err != nil || !made {
		h.T.Fatalf("endpoint: %v, %v", made, err)
	}
	c.mu.Lock()
	c.hook, err = standardwebhooks.NewWebhook(e.Secret)
	c.mu.Unlock()
	if err != nil {
		h.T.Fatal(err)
	}
	if _, _, err := h.Schedules.PutWorkflow(h.T.Context(), h.Tenant, workflow, schedules.WorkflowParams{Endpoint: &workflow}); err != nil {
		h.T.Fatal(err)
	}
	return c
}

// Hang makes each request wait after it was caught.
func (c *Catcher) Hang(wait func(n int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = wait
}

// AnswerEach makes the endpoint answer each request as its last tick says.
func (c *Catcher) AnswerEach(answer func(one Handed, w http.ResponseWriter)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = func(n int, w http.ResponseWriter) {
		if n > 0 {
			answer(c.Got[n-1], w)
		}
	}
}

func (c *Catcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	n, wait := c.catch(w, r, body, err)
	if wait != nil {
		wait(n)
	}
}

func (c *Catcher) catch(w http.ResponseWriter, r *http.Request, body []byte, err error) (n int, wait func(int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		err = c.hook.Verify(body, r.Header)
	}
	var batch struct{ Ticks []Handed }
	var one Handed
	if err == nil {
		err = json.Unmarshal(body, &batch)
	}
	if err == nil && batch.Ticks == nil {
		err = json.Unmarshal(body, &one)
		batch.Ticks = []Handed{one}
	}
	if err != nil {
		c.Errs = append(c.Errs, err)
	}
	for i := range batch.Ticks {
		batch.Ticks[i].Header = r.Header
	}
	c.Got = append(c.Got, batch.Ticks...)
	if c.answer != nil {
		c.answer(len(c.Got), w)
	}
	return len(c.Got), c.wait
}

func (c *Catcher) Caught() []Handed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Handed(nil), c.Got...)
}
