package finish_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
)

func TestLimitedWorkflowIsLeasedWithinItsLimit(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Limit("few", nil, new(int32(2)))
	h.Fire("few", 5, 2)
	dispatchtest.Until(t, "all wait for workers", func() bool { return h.Number(`SELECT COALESCE(sum(ticks - taken), 0) FROM ready`) == 5 })
	running := h.Lease("few", 10)
	if len(running) != 2 {
		t.Fatalf("leased %d at once, want 2", len(running))
	}
	if more := leaseAtOnce(h, "few"); len(more) != 0 {
		t.Fatalf("leased %d more", len(more))
	}
	h.End(running[0], "complete", false)
	if next := leaseWhenFree(h, "few", 10); len(next) != 1 {
		t.Errorf("one has ended, and %d were leased", len(next))
	}
	h.End(running[1], "fail", false)
	h.Limit("few", nil, nil)
	if rest := h.Lease("few", 10); len(rest) != 2 {
		t.Errorf("without a limit %d were leased, want what is left", len(rest))
	}
}

// leaseWhenFree leases ticks of a workflow that has no free slot yet. A slot may be freed only by a look for lost ones, and between two of
// these there may be as long a pause as a poll can wait.
func leaseWhenFree(h *dispatchtest.Carillon, workflow string, most int) (got []dispatchtest.Handed) {
	h.T.Helper()
	dispatchtest.Until(h.T, "a slot is free", func() bool {
		got = h.Lease(workflow, most)
		return len(got) > 0
	})
	return got
}

// leaseAtOnce leases without waiting.
func leaseAtOnce(h *dispatchtest.Carillon, workflow string) []dispatchtest.Handed {
	h.T.Helper()
	body, err := h.Dispatch.Leases.Lease(h.T.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{workflow, "other"}, Max: new(10), Wait: "0s"}, nil)
	if err != nil {
		h.T.Fatal(err)
	}
	return dispatchtest.TicksOf(h.T, body)
}

func TestSlotOfADeadWorkerIsFreed(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Limit("few", nil, new(int32(1)))
	h.Fire("few", 2, 2)
	first := h.Lease("few", 10)[0]
	h.Exec(`UPDATE lease SET until_at = clock_timestamp()`)
	second := leaseWhenFree(h, "few", 10)[0]
	if second.TickID == first.TickID && second.Attempt != 2 {
		t.Errorf("got %+v after %+v", second, first)
	}
	if n := h.Number(`SELECT count(*) FROM slot`); n != 1 {
		t.Errorf("%d slots are taken, want 1", n)
	}
}

func TestLeakedSlotIsFound(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Limit("few", nil, new(int32(1)))
	h.Exec(`INSERT INTO slot (tenant_id, schedule_id, nominal_at, seq, attempt, workflow) VALUES ($1, 7, now(), 0, 1, 'few')`, h.Tenant)
	h.Fire("few", 1, 2)
	if got := leaseWhenFree(h, "few", 1); len(got) != 1 {
		t.Errorf("leased %d", len(got))
	}
}

func TestLimitedWorkflowIsPushedWithinItsLimit(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("few", 1, nil)
	running := &running{caught: c.Caught, gates: map[string]chan struct{}{}, now: map[string]bool{}}
	c.Hang(running.hang)
	defer running.releaseAll()
	other := h.Process()
	h.Start(h.Dispatch)
	h.Start(other)
	h.Limit("few", new("few"), new(int32(3)))
	h.Fire("few", 12, 2)
	dispatchtest.Until(t, "three are pushed, and the rest wait", func() bool {
		return len(firstOfEach(c.Caught())) == 3 && h.Number(`SELECT count(*) FROM queued`) == 9
	})
	h.Fire("few", 2, 1) // urgent ones come before those that wait already
	dispatchtest.Until(t, "they wait too", func() bool { return h.Number(`SELECT count(*) FROM queued`) == 11 })
	for _, one := range firstOfEach(c.Caught()) {
		running.release(one.TickID)
	}
	dispatchtest.Until(t, "three more are pushed", func() bool { return len(firstOfEach(c.Caught())) == 6 })
	first := firstOfEach(c.Caught())[3:6]
	if urgent := slices.IndexFunc(first, func(one dispatchtest.Handed) bool { return one.Key == "p1-000" }); urgent < 0 {
		t.Errorf("an urgent one waits, and these were pushed: %+v", first)
	}
	running.releaseAll()
	dispatchtest.Until(t, "all have succeeded", func() bool {
		return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 14
	})
	if most := running.atOnce(); most > 3 {
		t.Errorf("%d ran at once, want 3", most)
	}
	if got := c.Caught(); len(firstOfEach(got)) != 14 || len(got) != 14 && !h.TakenOver(0) {
		t.Errorf("%d were pushed, %d of them for the first time, want each of 14 once", len(got), len(firstOfEach(got)))
	}
	if n := h.Number(`SELECT count(*) FROM attempt`); n != 0 {
		t.Errorf("%d attempts have failed", n)
	}
	dispatchtest.Until(t, "no slot is taken", func() bool { return h.Number(`SELECT count(*) FROM slot`) == 0 })
}

func TestRetriesAndLiftedLimitsFreeWhatWaits(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("few", 1, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(500)
		}
	})
	h.Start(h.Dispatch)
	h.Limit("few", new("few"), new(int32(1)))
	h.Fire("few", 3, 2)
	dispatchtest.Until(t, "all have been pushed, one of them twice", func() bool {
		return len(c.Caught()) >= 4 && h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 3
	})

	release := make(chan struct{})
	var once sync.Once
	defer once.Do(func() { close(release) })
	c.Hang(func(int) { <-release })
	h.Fire("few", 4, 3)
	dispatchtest.Until(t, "three wait", func() bool { return h.Number(`SELECT count(*) FROM queued`) == 3 })
	h.Limit("few", new("few"), nil)
	dispatchtest.Until(t, "all are pushed", func() bool { return len(c.Caught()) >= 8 && h.Number(`SELECT count(*) FROM queued`) == 0 })
	once.Do(func() { close(release) })
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 7 })
}

func TestSlotsOutliveAProcess(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("few", 1, nil)
	release := make(chan struct{})
	c.Hang(func(n int) {
		if n == 1 {
			<-release
		}
	})
	if err := h.Dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Limit("few", new("few"), new(int32(1)))
	h.Fire("few", 3, 2)
	dispatchtest.Until(t, "one is pushed and two wait", func() bool { return len(firstOfEach(c.Caught())) == 1 && h.Number(`SELECT count(*) FROM queued`) == 2 })
	h.Dispatch.Kill()
	close(release)
	h.Start(h.Process())
	dispatchtest.Until(t, "all have succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 3 })
	if got := c.Caught(); len(got) < 4 || len(got) > 4 && !h.TakenOver(1) || len(firstOfEach(got)) != 3 || got[1].TickID != got[0].TickID {
		t.Errorf("got %+v", got)
	}
	dispatchtest.Until(t, "no slot is taken", func() bool { return h.Number(`SELECT count(*) FROM slot`) == 0 })
}
