package dispatch_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

func (h *house) limit(workflow string, endpoint *string, most *int32) {
	h.t.Helper()
	if _, _, err := h.schedules.PutWorkflow(h.t.Context(), h.tenant, workflow, schedules.WorkflowParams{Endpoint: endpoint, MaxRunning: most}); err != nil {
		h.t.Fatal(err)
	}
}

// fire makes n manual ticks of a workflow, one of each of n keys.
func (h *house) fire(workflow string, n int, priority int) {
	h.t.Helper()
	for i := range n {
		key := fmt.Sprintf("p%d-%03d", priority, i)
		h.put(workflow, key, schedules.Params{Spec: rarely("skip").Spec, Delivery: &policy.Delivery{Priority: &priority}})
		if _, _, err := h.dispatch.Control.Trigger(h.t.Context(), h.tenant, workflow, key, control.TriggerParams{}, once.Request{}); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestLimitedWorkflowIsLeasedWithinItsLimit(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.limit("few", nil, new(int32(2)))
	h.fire("few", 5, 2)
	until(t, "all wait for workers", func() bool { return h.number(`SELECT COALESCE(sum(ticks - taken), 0) FROM ready`) == 5 })
	running := h.lease("few", 10)
	if len(running) != 2 {
		t.Fatalf("leased %d at once, want 2", len(running))
	}
	if more := h.leaseAtOnce("few"); len(more) != 0 {
		t.Fatalf("leased %d more", len(more))
	}
	h.end(running[0], "complete", false)
	if next := h.lease("few", 10); len(next) != 1 {
		t.Errorf("one has ended, and %d were leased", len(next))
	}
	h.end(running[1], "fail", false)
	h.limit("few", nil, nil)
	if rest := h.lease("few", 10); len(rest) != 2 {
		t.Errorf("without a limit %d were leased, want what is left", len(rest))
	}
}

// leaseAtOnce leases without waiting.
func (h *house) leaseAtOnce(workflow string) []handed {
	h.t.Helper()
	body, err := h.dispatch.Leases.Lease(h.t.Context(), h.tenant, lease.LeaseParams{Workflows: []string{workflow, "other"}, Max: new(10), Wait: "0s"}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return ticksOf(h.t, body)
}

func TestSlotOfADeadWorkerIsFreed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.limit("few", nil, new(int32(1)))
	h.fire("few", 2, 2)
	first := h.lease("few", 10)[0]
	h.exec(`UPDATE lease SET until_at = clock_timestamp()`)
	second := h.lease("few", 10)[0]
	if second.TickID == first.TickID && second.Attempt != 2 {
		t.Errorf("got %+v after %+v", second, first)
	}
	if n := h.number(`SELECT count(*) FROM slot`); n != 1 {
		t.Errorf("%d slots are taken, want 1", n)
	}
}

func TestLeakedSlotIsFound(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.limit("few", nil, new(int32(1)))
	h.exec(`INSERT INTO slot (tenant_id, schedule_id, nominal_at, seq, attempt, workflow) VALUES ($1, 7, now(), 0, 1, 'few')`, h.tenant)
	h.fire("few", 1, 2)
	if got := h.lease("few", 1); len(got) != 1 {
		t.Errorf("leased %d", len(got))
	}
}

func TestLimitedWorkflowIsPushedWithinItsLimit(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("few", 1, nil)
	var now, most atomic.Int32
	release := make(chan struct{})
	c.hang(func(int) {
		n := now.Add(1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		<-release
		now.Add(-1)
	})
	other := h.process()
	h.start(h.dispatch)
	h.start(other)
	h.limit("few", new("few"), new(int32(3)))
	h.fire("few", 12, 2)
	until(t, "three are pushed, and the rest wait", func() bool {
		return len(c.caught()) == 3 && h.number(`SELECT count(*) FROM waiting`) == 9
	})
	h.fire("few", 2, 1) // urgent ones come before those that wait already
	until(t, "they wait too", func() bool { return h.number(`SELECT count(*) FROM waiting`) == 11 })
	for range 3 {
		release <- struct{}{}
	}
	until(t, "three more are pushed", func() bool { return len(c.caught()) == 6 })
	first := c.caught()[3:6]
	if urgent := slices.IndexFunc(first, func(one handed) bool { return one.Key == "p1-000" }); urgent < 0 {
		t.Errorf("an urgent one waits, and these were pushed: %+v", first)
	}
	close(release)
	until(t, "all have succeeded", func() bool {
		return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == 14
	})
	if most.Load() > 3 {
		t.Errorf("%d ran at once, want 3", most.Load())
	}
	if len(c.caught()) != 14 {
		t.Errorf("%d were pushed, want each once", len(c.caught()))
	}
	until(t, "no slot is taken", func() bool { return h.number(`SELECT count(*) FROM slot`) == 0 })
}

func TestRetriesAndLiftedLimitsFreeWhatWaits(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("few", 1, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(500)
		}
	})
	h.start(h.dispatch)
	h.limit("few", new("few"), new(int32(1)))
	h.fire("few", 3, 2)
	until(t, "all have been pushed, one of them twice", func() bool {
		return len(c.caught()) >= 4 && h.number(`SELECT count(*) FROM tick WHERE state = 2`) == 3
	})

	release := make(chan struct{})
	var once sync.Once
	defer once.Do(func() { close(release) })
	c.hang(func(int) { <-release })
	h.fire("few", 4, 3)
	until(t, "three wait", func() bool { return h.number(`SELECT count(*) FROM waiting`) == 3 })
	h.limit("few", new("few"), nil)
	until(t, "all are pushed", func() bool { return len(c.caught()) >= 8 && h.number(`SELECT count(*) FROM waiting`) == 0 })
	once.Do(func() { close(release) })
	until(t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == 7 })
}

func TestSlotsOutliveAProcess(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("few", 1, nil)
	release := make(chan struct{})
	c.hang(func(n int) {
		if n == 1 {
			<-release
		}
	})
	if err := h.dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.limit("few", new("few"), new(int32(1)))
	h.fire("few", 3, 2)
	until(t, "one is pushed and two wait", func() bool { return len(c.caught()) == 1 && h.number(`SELECT count(*) FROM waiting`) == 2 })
	h.dispatch.Kill()
	close(release)
	h.start(h.process())
	until(t, "all have succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == 3 })
	if got := c.caught(); len(got) != 4 || got[1].TickID != got[0].TickID {
		t.Errorf("got %+v", got)
	}
	until(t, "no slot is taken", func() bool { return h.number(`SELECT count(*) FROM slot`) == 0 })
}
