package push_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Two processes keep to the rate of an endpoint, with retries.
func TestTicksAreSentAtTheRateOfTheirEndpoint(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const perSecond, size = 40, 150
	var mu sync.Mutex
	var came []time.Time
	c := h.Catcher("w", 1, func(n int, w http.ResponseWriter) {
		mu.Lock()
		came = append(came, time.Now())
		mu.Unlock()
		if n%10 == 0 { // retried after a moment
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	putRate(h, c, &policy.Rate{PerSecond: perSecond})
	h.Put("w", "first", dispatchtest.Daily(0))
	h.Herd("w", "first", size-1)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	h.Start(h.Process())
	dispatchtest.Until(t, "all succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == size })
	mu.Lock()
	defer mu.Unlock()
	for i, from := range came {
		n := 0
		for _, at := range came[i:] {
			if at.Before(from.Add(time.Second)) {
				n++
			}
		}
		if n > perSecond+perSecond/10+12 {
			t.Fatalf("%d requests within a second", n)
		}
	}
	if took := came[len(came)-1].Sub(came[0]); took < 3500*time.Millisecond {
		t.Errorf("it took %s", took)
	}
}

// putRate gives the endpoint of a catcher a rate, or none.
func putRate(h *dispatchtest.Carillon, c *dispatchtest.Catcher, r *policy.Rate) {
	h.T.Helper()
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(h.T.Context(), h.Tenant, "w", push.EndpointParams{URL: c.URL + "/hook", Rate: r}); err != nil {
		h.T.Fatal(err)
	}
}

// A manual tick does not wait for the rate of its endpoint, nor behind the many ticks that do.
func TestAManualTickIsSentBesideTheRateOfItsEndpoint(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("w", 1, nil)
	const size = 150 // for more than a minute
	putRate(h, c, &policy.Rate{PerSecond: 2})
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	h.Put("w", "first", dispatchtest.Daily(0))
	h.Herd("w", "first", size-1)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	h.Start(h.Process())
	dispatchtest.Until(t, "some are sent", func() bool { return len(c.Caught()) > 5 })
	if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", "k", control.TriggerParams{}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	manual := func() int {
		return slices.IndexFunc(c.Caught(), func(one dispatchtest.Handed) bool { return one.Cause == "manual" })
	}
	dispatchtest.Until(t, "the manual one is sent", func() bool { return manual() >= 0 })
	if at := manual(); at > size-20 {
		t.Errorf("the manual tick came after %d others", at)
	}
	putRate(h, c, nil)
	dispatchtest.Until(t, "all succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == size+1 })
}

// A rate that is taken away counts for what waits.
func TestAnEndpointsRateThatIsTakenAwayCountsForWhatWaits(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("w", 1, nil)
	putRate(h, c, &policy.Rate{PerSecond: 1, Ramp: "1m"})
	h.Put("w", "first", dispatchtest.Daily(0))
	h.Herd("w", "first", 99)
	h.Backdate(h.Tenant)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "one is sent", func() bool { return len(c.Caught()) > 0 })
	if n := len(c.Caught()); n > 10 {
		t.Errorf("%d were sent at once", n)
	}
	putRate(h, c, nil)
	dispatchtest.Until(t, "all are sent", func() bool { return len(dispatchtest.KeysOf(c.Caught())) == 100 })
}
