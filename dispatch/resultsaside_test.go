package dispatch_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// pushedTo is another tenant, with n ticks on their way to its endpoint. The endpoint answers with a status when answer is called with
// the number of a tick, and from then on at once.
func (h *house) pushedTo(n, status int) (id tenants.ID, sent *atomic.Int32, answer func()) {
	h.t.Helper()
	id = h.quota("neighbour", 50_000)
	ctx := postgres.ForTenant(h.t.Context(), int32(id))
	gate := make(chan struct{})
	sent = new(atomic.Int32)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		<-gate
		w.WriteHeader(status)
	}))
	answer = sync.OnceFunc(func() { close(gate) })
	h.t.Cleanup(endpoint.Close)
	h.t.Cleanup(answer)
	if _, _, err := h.dispatch.Pusher.PutEndpoint(ctx, id, "e", push.EndpointParams{URL: endpoint.URL}); err != nil {
		h.t.Fatal(err)
	}
	if _, _, err := h.schedules.PutWorkflow(ctx, id, "w", schedules.WorkflowParams{Endpoint: new("e")}); err != nil {
		h.t.Fatal(err)
	}
	for i := range n {
		key := fmt.Sprint(i)
		if _, _, err := h.schedules.Put(ctx, policy.Name{Tenant: id, Workflow: "w", Key: key}, rarely("skip"), "tester", version.Precondition{}); err != nil {
			h.t.Fatal(err)
		}
		if _, _, err := h.dispatch.Control.Trigger(ctx, id, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
			h.t.Fatal(err)
		}
	}
	until(h.t, "all are sent", func() bool { return sent.Load() == int32(n) })
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
			h := newHouse(t)
			h.start(h.dispatch)
			id, _, answer := h.pushedTo(8, x.status)
			c := h.catcher("w", 1, nil)
			tx, err := h.pool.Begin(t.Context())
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
			h.fire("w", 20, 2)
			until(t, "the ticks of the other tenant have succeeded", func() bool {
				return h.number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state = 2`, h.tenant) == 20
			})
			if n := len(c.caught()); n != 20 {
				t.Errorf("%d were sent, want 20", n)
			}
			if n := h.number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state <> 1`, id); n > 0 {
				t.Errorf("%d results were written that could not be", n)
			}
			if x.commits {
				h.exec(`UPDATE workflow SET defaults = '{}' WHERE tenant_id = $1`, id)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			until(t, "the results are written", func() bool {
				return h.number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND (state = 2 OR attempt > 1)`, id) == 8
			})
		})
	}
}

// Results that cannot be written for long are dropped, and the process takes their chunk again and sends its ticks again.
func TestResultsThatAreDroppedAreSentAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatch.KeepAside(time.Millisecond)
	h.start(h.dispatch)
	id, sent, answer := h.pushedTo(3, 200)
	tx, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM schedule_state WHERE tenant_id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	answer()
	until(t, "all are sent again", func() bool { return sent.Load() >= 6 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state = 2`, id) == 3 })
}

// A process ends though results cannot be written.
func TestAProcessEndsThoughResultsCannotBeWritten(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if err := h.dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, _, answer := h.pushedTo(3, 200)
	tx, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM schedule_state WHERE tenant_id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	answer()
	if err := h.dispatch.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.start(h.process())
	until(t, "another process sends them", func() bool { return h.number(`SELECT count(*) FROM tick WHERE tenant_id = $1 AND state = 2`, id) == 3 })
}
