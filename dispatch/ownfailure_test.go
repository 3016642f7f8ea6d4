package dispatch_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// putOnce is a schedule of one tick that names a calendar, and has one attempt: each push of it reads its cohort.
func putOnce(h *dispatchtest.Carillon, workflow, key string, seconds int) {
	h.T.Helper()
	p := schedules.Params{Spec: dispatchtest.At(seconds), Delivery: &policy.Delivery{MaxAttempts: new(1)}}
	p.Spec.Exclude = dispatchtest.OffSpec("").Exclude
	h.Put(workflow, key, p)
}

// hung makes a Carillon with n ticks for an endpoint w, which gets one request at a time, of at most batch ticks. The request of the tick
// "first" hangs until letGo is called; the other ticks are open, and wait for its end. A process that counted as dead meanwhile sends
// "first" again, which hangs too.
func hung(t *testing.T, batch int16, n int) (h *dispatchtest.Carillon, c *dispatchtest.Catcher, letGo func()) {
	t.Helper()
	h = dispatchtest.New(t)
	h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.RunningPerEndpoint = 1
		return q, nil
	}
	h.PutCalendar()
	c = h.Catcher("w", batch, nil)
	release := make(chan struct{})
	c.Hang(func(int) { <-release })
	letGo = sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo)
	h.Start(h.Process())
	putOnce(h, "w", "first", 5)
	dispatchtest.Until(t, "the first is sent", func() bool { return len(c.Caught()) > 0 })
	for i := range n - 1 {
		putOnce(h, "w", string(rune('a'+i)), 5)
	}
	dispatchtest.Until(t, "the others are open", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 1`) == n })
	return h, c, letGo
}

// A push that fails because our own database fails spends no attempt, and the tick is delivered later.
func TestAFailureOfOurDatabaseSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for failure, sql := range map[string]string{
		"an error":  `REVOKE SELECT ON cohort FROM ` + postgres.EngineRole,
		"no answer": `LOCK TABLE cohort IN ACCESS EXCLUSIVE MODE`,
	} {
		t.Run(failure, func(t *testing.T) {
			t.Parallel()
			const n = 4
			h, c, letGo := hung(t, 1, n)
			silent, err := h.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := silent.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
			if failure == "an error" {
				if err := silent.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			letGo()
			dispatchtest.Until(t, "the others wait after a push that was not made", func() bool {
				return h.Number(`
					SELECT count(*)
					FROM delayed h
					JOIN tick t ON t.schedule_id = h.schedule_id
					JOIN schedule s ON s.id = h.schedule_id
					WHERE h.attempt = 1 AND t.state = 1 AND s.key <> 'first'`) == n-1
			})
			if keys := dispatchtest.KeysOf(c.Caught()); len(keys) > 1 {
				t.Errorf("sent without a timing: %v", keys)
			}
			if failure == "an error" {
				h.Exec(`GRANT SELECT ON cohort TO ` + postgres.EngineRole)
			} else if err := silent.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			dispatchtest.Until(t, "all are delivered in their only attempt", func() bool {
				return h.Number(`SELECT count(*) FROM tick WHERE state = 2 AND attempt = 1 AND error IS NULL`) == n
			})
			if failures := h.Number(`SELECT count(*) FROM attempt WHERE outcome <> 'succeeded'`); failures > 0 {
				t.Errorf("%d attempts have failed", failures)
			}
		})
	}
}

// A tick whose spec cannot be computed ends by itself, and the ticks of its batch are sent.
func TestATickThatCannotBeComputedSpoilsNoBatch(t *testing.T) {
	t.Parallel()
	const n = 5
	h, c, letGo := hung(t, 10, n)
	h.Exec(`UPDATE schedule SET spec = '{"cron": ["nonsense"]}', cohort_id = NULL, status = 'quarantined' WHERE key = 'b'`)
	h.Exec(`DELETE FROM cohort WHERE id = (SELECT tick.cohort_id FROM tick JOIN schedule s ON s.id = schedule_id WHERE s.key = 'b')`)
	letGo()
	dispatchtest.Until(t, "all have ended", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE ended_at IS NOT NULL`) == n })
	if good := h.Number(`SELECT count(*) FROM tick WHERE state = 2 AND attempt = 1`); good != n-1 {
		t.Errorf("%d have succeeded, want %d", good, n-1)
	}
	others := slices.DeleteFunc(c.Caught(), func(one dispatchtest.Handed) bool { return one.Key == "first" })
	if len(others) != n-2 {
		t.Errorf("%d of the others were sent, want %d", len(others), n-2)
	}
	odd := h.History("w", "b")[0]
	if odd.State != "failed" || odd.Error == nil || *odd.Error != "the spec of the schedule's version cannot be computed" {
		t.Errorf("the odd one: got %+v", odd)
	}
}

// While a tenant's quotas cannot be read, its ticks are still pushed, one at a time.
func TestASlotDoesNotWaitForQuotas(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	var silent atomic.Bool
	h.Config.Quotas = func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error) {
		if silent.Load() { // as Quotas promises: it gives up after a second
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return tenants.Quotas{}, ctx.Err()
		}
		return dispatchtest.Quotas(ctx, tenant)
	}
	c := h.Catcher("w", 1, nil)
	h.Start(h.Process())
	h.Put("w", "a", schedules.Params{Spec: dispatchtest.At(15)})
	h.Put("w", "b", schedules.Params{Spec: dispatchtest.At(15)})
	silent.Store(true)
	dispatchtest.Until(t, "both are delivered", func() bool { return len(dispatchtest.KeysOf(c.Caught())) == 2 })
}

// Ticks whose timings cannot be read are not leased, and the next poll gets them in their first attempt.
func TestAFailureOfOurDatabaseLeasesNothing(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.PutCalendar()
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, "pulled", schedules.WorkflowParams{}); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Dispatch)
	putOnce(h, "pulled", "k", 5)
	dispatchtest.Until(t, "the tick is ready", func() bool { return h.Number(`SELECT count(*) FROM ready`) == 1 })
	h.Exec(`REVOKE SELECT ON cohort FROM ` + postgres.APIRole)
	ctx := postgres.ForTenant(t.Context(), int32(h.Tenant))
	params := lease.LeaseParams{Workflows: []string{"pulled"}}
	if body, err := h.Dispatch.Leases.Lease(ctx, h.Tenant, params, nil); err == nil {
		t.Errorf("got %s without a timing", body)
	}
	if n := h.Number(`SELECT count(*) FROM lease`); n > 0 {
		t.Errorf("%d leases are kept that nobody got", n)
	}
	h.Exec(`GRANT SELECT ON cohort TO ` + postgres.APIRole)
	if got := h.Lease("pulled", 1); len(got) != 1 || got[0].Attempt != 1 {
		t.Errorf("got %+v, want the first attempt", got)
	}
}

// An endpoint that resets the connection has failed the attempt, and the error does not name our side of the connection.
func TestErrorsOfAttemptsDoNotNameOurAddress(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Catcher("reset", 1, func(_ int, w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // closes with a reset
		_ = conn.Close()
	})
	h.Start(h.Dispatch)
	h.Put("reset", "k", schedules.Params{Spec: dispatchtest.At(5), Delivery: &policy.Delivery{MaxAttempts: new(1)}})
	dispatchtest.Until(t, "the tick has failed", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 3`) == 1 })
	got := h.History("reset", "k")[0]
	if got.Error == nil || strings.Contains(*got.Error, "127.0.0.1") || strings.Contains(*got.Error, "->") {
		t.Errorf("got %v", *got.Error)
	}
}
