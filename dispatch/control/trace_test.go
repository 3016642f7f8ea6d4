package control_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules/policy"
)

const clientsTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The trace of a trigger's request is passed on with each attempt, also by a process that exports no spans.
func TestATriggersTraceIsPassedOn(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	hook := h.Catcher("w", 1, nil)
	hook.AnswerEach(func(one dispatchtest.Handed, w http.ResponseWriter) {
		if one.TickID == hook.Got[0].TickID && one.Attempt == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	h.Start(h.Dispatch)
	triggered := c.Do("POST", dispatchtest.Trigger, "", "Traceparent", clientsTrace)
	if triggered.Status != http.StatusAccepted || !strings.Contains(string(triggered.Body), clientsTrace) {
		t.Fatalf("got %d: %s", triggered.Status, triggered.Body)
	}
	dispatchtest.Until(t, "both attempts were pushed", func() bool { return len(attempts(hook.Caught())) == 2 })
	for _, one := range hook.Caught() {
		if one.Traceparent != clientsTrace || one.Header.Get("Traceparent") != clientsTrace {
			t.Errorf("attempt %d: got %q in the body, and %q in the header", one.Attempt, one.Traceparent, one.Header.Get("Traceparent"))
		}
	}
	later := c.Do("POST", dispatchtest.Trigger, `{"in": "1s"}`, "Traceparent", clientsTrace)
	if later.Status != http.StatusAccepted {
		t.Fatalf("got %d: %s", later.Status, later.Body)
	}
	c.Do("POST", dispatchtest.Trigger, "")
	traces := map[string]string{} // of ticks
	dispatchtest.Until(t, "both were pushed", func() bool {
		for _, one := range hook.Caught() {
			traces[one.TickID] = one.Traceparent
		}
		return len(traces) == 3
	})
	delete(traces, hook.Caught()[0].TickID)
	with := 0
	for _, trace := range traces {
		if trace == clientsTrace {
			with++
		}
	}
	if with != 1 {
		t.Errorf("%d of the two last ticks have the trace of a request", with)
	}
}

// attempts returns what was sent by the number of its attempt: one may be sent again.
func attempts(caught []dispatchtest.Handed) map[int]dispatchtest.Handed {
	of := map[int]dispatchtest.Handed{}
	for _, one := range caught {
		of[one.Attempt] = one
	}
	return of
}

// A timed tick has a trace of its own if no spans are exported: the same on every attempt, in the record and in the dead letter, and not
// sampled.
func TestATimedTickHasATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	hook := h.Catcher("w", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	p := dispatchtest.EverySecond()
	p.Spec = dispatchtest.At(15)
	p.Delivery = &policy.Delivery{MaxAttempts: new(2)}
	h.Put("w", "k", p)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "both attempts were pushed", func() bool { return len(attempts(hook.Caught())) == 2 })
	first, second := attempts(hook.Caught())[1], attempts(hook.Caught())[2]
	if first.Traceparent != second.Traceparent || first.Header.Get("Traceparent") != first.Traceparent || !strings.HasSuffix(first.Traceparent, "-00") {
		t.Errorf("got %q and %q", first.Traceparent, second.Traceparent)
	}
	dispatchtest.Until(t, "it has failed", func() bool { return h.History("w", "k")[0].State == "failed" })
	path := "/v1/ticks/" + first.TickID
	if got := dispatchtest.Get[history.Tick](c, 200, "GET", path, ""); got.Traceparent != first.Traceparent {
		t.Errorf("got %q", got.Traceparent)
	}
	if got := dispatchtest.Get[history.Tick](c, 202, "POST", path+"/replay", ""); got.Traceparent != first.Traceparent {
		t.Errorf("got %q of the replay", got.Traceparent)
	}
}
