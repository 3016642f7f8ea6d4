package lease_test

import (
	"net/http"
	"testing"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
)

// register registers a workflow with a version; empty: with none.
func register(h *dispatchtest.Carillon, workflow, version string, endpoint *string) {
	h.T.Helper()
	p := schedules.WorkflowParams{Endpoint: endpoint}
	if version != "" {
		p.Version = &version
	}
	if _, _, err := h.Schedules.PutWorkflow(h.T.Context(), h.Tenant, workflow, p); err != nil {
		h.T.Fatal(err)
	}
}

func fire(h *dispatchtest.Carillon, workflow, key string) {
	h.T.Helper()
	if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, workflow, key, control.TriggerParams{}, once.Request{}); err != nil {
		h.T.Fatal(err)
	}
}

func versionOf(one dispatchtest.Handed) string {
	if one.Version == nil {
		return ""
	}
	return *one.Version
}

// A tick has the version of its workflow that was registered when it fired, on every attempt, however often the version changes.
func TestALeasedTickHasTheVersionOfItsFiring(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	for _, version := range []string{"", "1", "2", "", "3"} {
		register(h, "w", version, nil)
		fire(h, "w", "k")
	}
	register(h, "w", "4", nil)
	register(h, "w", "4", nil) // no change
	want := map[string]string{}
	for i, one := range h.History("w", "k") {
		want[one.TickID] = []string{"", "1", "2", "", "3"}[i]
	}
	retried := 0
	for i := range 4 * len(want) {
		one := h.Lease("w", 1)[0]
		if got := versionOf(one); got != want[one.TickID] || one.Expired == nil || *one.Expired {
			t.Errorf("got version %q in attempt %d, want %q", got, one.Attempt, want[one.TickID])
		}
		if one.Attempt > 1 {
			retried++
		}
		h.End(one, "fail", true)
		if i == len(want) {
			register(h, "w", "5", nil)
		}
	}
	if retried == 0 {
		t.Error("no tick was retried")
	}
	if n := h.Number(`SELECT jsonb_array_length(past_versions) FROM workflow WHERE name = 'w'`); n != 6 {
		t.Errorf("%d earlier versions are kept, want 6", n)
	}
	for range 2 {
		h.Exec(`UPDATE workflow SET past_versions = (SELECT jsonb_agg(jsonb_build_object('v', 'old', 'u', n)) FROM generate_series(1, 100) n)`)
		register(h, "w", "6", nil)
		if n := h.Number(`SELECT jsonb_array_length(past_versions) FROM workflow WHERE name = 'w'`); n != 100 {
			t.Errorf("%d earlier versions are kept, want 100", n)
		}
	}
}

func TestAPushedTickHasTheVersionOfItsFiring(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("w", 1, nil)
	c.AnswerEach(func(one dispatchtest.Handed, w http.ResponseWriter) {
		if one.Attempt == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	endpoint := "w"
	register(h, "w", "1", &endpoint)
	h.Put("w", "k", dispatchtest.Rarely("allow_all"))
	h.Start(h.Dispatch)
	fire(h, "w", "k")
	dispatchtest.Until(t, "the first attempt has failed", func() bool { return h.Number(`SELECT count(*) FROM attempt`) == 1 })
	register(h, "w", "2", &endpoint)
	dispatchtest.Until(t, "it has succeeded", func() bool { return h.History("w", "k")[0].State == "succeeded" })
	attempts := map[int]bool{}
	for _, one := range c.Caught() {
		attempts[one.Attempt] = true
		if got := versionOf(one); got != "1" {
			t.Errorf("attempt %d has version %q, want 1", one.Attempt, got)
		}
	}
	if len(attempts) != 2 || len(c.Caught()) != 2 && !h.TakenOver(0) {
		t.Errorf("%d requests of %d attempts, want 2", len(c.Caught()), len(attempts))
	}
}
