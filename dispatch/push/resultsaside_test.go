package push_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// pushedTo makes another tenant, with n ticks that are sent to its endpoint. The endpoint answers none of them until answer is called, and
// from then on answers with status at once.
func pushedTo(h *dispatchtest.Carillon, n, status int) (id tenants.ID, sent *atomic.Int32, answer func()) {
	h.T.Helper()
	id = h.Quota("neighbour", 50_000)
	ctx := postgres.ForTenant(h.T.Context(), int32(id))
	gate := make(chan struct{})
	sent = new(atomic.Int32)
	var known sync.Map
	var ticks atomic.Int32
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, again := known.LoadOrStore(r.Header.Get("Webhook-Id"), true); !again {
			ticks.Add(1)
		}
		sent.Add(1)
		<-gate
		w.WriteHeader(status)
	}))
	answer = sync.OnceFunc(func() { close(gate) })
	h.T.Cleanup(endpoint.Close)
	h.T.Cleanup(answer)
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(ctx, id, "e", push.EndpointParams{URL: endpoint.URL}); err != nil {
		h.T.Fatal(err)
	}
	if _, _, err := h.Schedules.PutWorkflow(ctx, id, "w", schedules.WorkflowParams{Endpoint: new("e")}); err != nil {
		h.T.Fatal(err)
	}
	for i := range n {
		key := fmt.Sprint(i)
		if _, _, err := h.Schedules.Put(ctx, policy.Name{Tenant: id, Workflow: "w", Key: key}, dispatchtest.Rarely("skip"), "tester", version.Precondition{}); err != nil {
			h.T.Fatal(err)
		}
		if _, _, err := h.Dispatch.Control.Trigger(ctx, id, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
			h.T.Fatal(err)
		}
	}
	dispatchtest.Until(h.T, "all are sent", func() bool { return ticks.Load() == int32(n) })
	return id, sent, answer
}

// Results of a tenant that cannot be written hold up no other tenant, and are written once they can be.
func TestResultsThatCannotBeWrittenHoldUpNoOtherTenant(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, breaks string
		commits      bool
		status       int
	}{
		{"a lock", `SELECT FROM schedule_state WHERE tenant_id = $1 FOR UPDATE`, false, 200},
		{"defaults that cannot be read", `UPDATE workflow SET defaults = '{"policy": {"overlap": "unheard of"}}' WHERE tenant_id = $1`, true, 500},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			h := dispatchtest.New(t)
			h.Start(h.Dispatch)
			id, _, answer := pushedTo(h, 8, x.status)
			c := h.Catcher("w", 1, nil)
			tx, err := h.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), x.breaks, id); err != nil {
				t.Fatal(err)
			}
			if x.commits {
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			answer()
			h.Fire("w", 20, 2)
			dispatchtest.Until(t, "the ticks of the other tenant have succeeded", func() bool {
				return h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state = 2`, h.Tenant) == 20
			})
			if sent := c.Caught(); len(sent) != 20 && !h.TakenOver(0) || len(dispatchtest.KeysOf(sent)) != 20 {
				t.Errorf("%d were sent of %d keys, want 20", len(sent), len(dispatchtest.KeysOf(sent)))
			}
			if n := h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state <> 1`, id); n > 0 {
				t.Errorf("%d results were written that could not be", n)
			}
			if x.commits {
				h.Exec(`UPDATE workflow SET defaults = '{}' WHERE tenant_id = $1`, id)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			dispatchtest.Until(t, "the results are written", func() bool {
				return h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND (state = 2 OR attempt > 1)`, id) == 8
			})
		})
	}
}

// Results that cannot be written for long are dropped, and the process takes their chunk again and sends its ticks again.
func TestResultsThatAreDroppedAreSentAgain(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Dispatch.KeepAside(time.Millisecond)
	h.Start(h.Dispatch)
	id, sent, answer := pushedTo(h, 3, 200)
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM schedule_state WHERE tenant_id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	answer()
	dispatchtest.Until(t, "all are sent again", func() bool { return sent.Load() >= 6 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state = 2`, id) == 3 })
}

// A process ends though results cannot be written.
func TestAProcessEndsThoughResultsCannotBeWritten(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, _, answer := pushedTo(h, 3, 200)
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM schedule_state WHERE tenant_id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	answer()
	if err := h.Dispatch.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Process())
	dispatchtest.Until(t, "another process sends them", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state = 2`, id) == 3 })
}
