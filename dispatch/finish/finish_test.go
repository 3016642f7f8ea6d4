package finish_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/once"
)

// urgent triggers a schedule with a max_lateness of one second, and returns the tick. onExpired says what becomes of it when it is later.
func urgent(h *dispatchtest.Carillon, workflow, key, onExpired string) history.Tick {
	h.T.Helper()
	p := dispatchtest.Rarely("allow_all")
	p.Policy.MaxLateness, p.Policy.OnExpired = "1s", onExpired
	h.Put(workflow, key, p)
	if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, workflow, key, control.TriggerParams{}, once.Request{}); err != nil {
		h.T.Fatal(err)
	}
	return h.History(workflow, key)[0]
}

const lateBySecond = `SELECT count(*) FROM tick WHERE nominal_at < clock_timestamp() - interval '1 second'`

func TestHeldTickFailsOnceItIsTooLate(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("w", 1, nil)
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, "w", push.EndpointParams{URL: c.URL, State: "held"}); err != nil {
		t.Fatal(err)
	}
	urgent(h, "w", "dose", "skip")
	urgent(h, "w", "invoice", "deliver")
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "they are late", func() bool { return h.Number(lateBySecond) == 2 })
	dispatchtest.Until(t, "the one has failed", func() bool {
		return h.History("w", "dose")[0].State == "failed"
	})
	got := h.History("w", "dose")[0]
	if got.Error == nil || *got.Error != "it could not be delivered within its max_lateness" || h.Number(`SELECT count(*) FROM attempt`) != 0 {
		t.Errorf("got %+v", got)
	}
	if letters := h.Number(`SELECT count(*) FROM dead_letter`); letters != 1 {
		t.Errorf("%d dead letters, want 1", letters)
	}
	if got := h.History("w", "invoice")[0]; got.State != "running" {
		t.Errorf("one that may come late: got %+v", got)
	}
	if _, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, "w", push.EndpointParams{URL: c.URL, State: "enabled"}); err != nil {
		t.Fatal(err)
	}
	dispatchtest.Until(t, "it is delivered", func() bool {
		return h.History("w", "invoice")[0].State == "succeeded"
	})
	if sent := c.Caught(); len(firstOfEach(sent)) != 1 || len(sent) != 1 && !h.TakenOver(0) || sent[0].Key != "invoice" || sent[0].Expired == nil || !*sent[0].Expired {
		t.Errorf("sent were %+v", sent)
	}
	h.Idle()
}

func TestTickThatNoWorkerTookInTimeFails(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	urgent(h, "w", "dose", "skip")
	urgent(h, "w", "invoice", "deliver")
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "they are late", func() bool { return h.Number(lateBySecond) == 2 })
	if got := h.Lease("w", 10); len(got) != 1 || got[0].Key != "invoice" || got[0].Expired == nil || !*got[0].Expired {
		t.Fatalf("leased %+v", got)
	}
	dispatchtest.Until(t, "the other has failed", func() bool { return h.History("w", "dose")[0].State == "failed" })
	if got := leaseAtOnce(h, "w"); len(got) != 0 {
		t.Errorf("leased %+v", got)
	}
}

func TestTickThatWaitsForASlotIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("few", 1, nil)
	release := make(chan struct{})
	c.Hang(func(int) { <-release })
	defer sync.OnceFunc(func() { close(release) })()
	h.Start(h.Dispatch)
	h.Limit("few", new("few"), new(int32(1)))
	h.Fire("few", 3, 2)
	dispatchtest.Until(t, "two wait", func() bool { return len(c.Caught()) == 1 && h.Number(`SELECT count(*) FROM queued`) == 2 })
	running := c.Caught()[0].Key
	for _, key := range []string{"p2-000", "p2-001", "p2-002"} {
		got, err := h.Dispatch.Control.Cancel(t.Context(), h.Tenant, h.History("few", key)[0].TickID)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "running", false: "cancelled"}[key == running]; got.State != want {
			t.Errorf("%s is %s, want %s", key, got.State, want)
		}
	}
	if left := h.Number(`SELECT count(*) FROM queued`); left != 0 {
		t.Errorf("%d wait still", left)
	}
}

func TestTicksOfOneLeaseAreFinishedAtOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 60
	h.ReadyHerd("herd", size)
	all := h.Lease("herd", size)
	if len(all) != size {
		t.Fatalf("leased %d", len(all))
	}
	var working sync.WaitGroup
	results := make([][]lease.Verdict, size)
	for i := range all {
		working.Go(func() {
			for range 2 { // the second is stale
				r, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: all[i].TickID, LeaseToken: all[i].LeaseToken, Outcome: "complete"}})
				if err != nil {
					t.Error(err)
					return
				}
				results[i] = append(results[i], r[0])
			}
		})
	}
	working.Wait()
	for i, got := range results {
		if !slices.Equal(got, []lease.Verdict{lease.Done, lease.Lost}) {
			t.Errorf("tick %d: the verdicts are %d", i, got)
		}
	}
	if left := h.Number(`SELECT COALESCE(sum(unended), 0) FROM lease`); left != 0 {
		t.Errorf("%d count as leased", left)
	}
	if schedules := h.Number(`SELECT count(*) FROM schedule_state WHERE succeeded = 1 AND live = 0`); schedules != size {
		t.Errorf("%d have succeeded, want %d", schedules, size)
	}
}
