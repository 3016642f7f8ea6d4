package operations_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

type countTo struct {
	To int `json:"to"`
}

// counting registers a kind of operation that counts to a number, one a step, in a table of its own. Each step calls also.
func counting(h *schedulestest.Fixture, also func(op *operations.Operation, n int) error) {
	h.T.Helper()
	h.Exec(`CREATE TABLE counted (operation bigint, n int, PRIMARY KEY (operation, n)); GRANT ALL ON counted TO carillon_engine`)
	h.Schedules.Operations.Register("count", func(ctx context.Context, tx pgx.Tx, op *operations.Operation) (bool, error) {
		var p countTo
		var n int
		if _, err := op.Read(&p, &n); err != nil {
			return false, err
		}
		n++
		if _, err := tx.Exec(ctx, `INSERT INTO counted VALUES ($1, $2)`, op.ID, n); err != nil {
			return false, err
		}
		op.Done++
		op.Total = new(int64(p.To))
		op.Count("numbers", 1)
		op.Result = map[string]int{"last": n}
		if err := op.Keep(n); err != nil {
			return false, err
		}
		return n == p.To, also(op, n)
	})
}

func steady(*operations.Operation, int) error { return nil }

// A step that fails stores nothing, and runs again. A step that succeeded does not run again.
func TestAStepIsDoneOnce(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	failing := errors.New("the network is down")
	failed := false
	counting(h, func(_ *operations.Operation, n int) error {
		if n == 3 && !failed {
			failed = true
			return failing
		}
		return nil
	})
	begun := begin(h, operations.Request{Kind: "count", Params: countTo{5}})
	id := schedulestest.OperationNumber(t, begun.ID)
	began := schedulestest.One[time.Time](h, `SELECT clock_timestamp()`)
	if err := h.Schedules.Operations.Run(t.Context(), id); !errors.Is(err, failing) {
		t.Fatalf("got %v", err)
	}
	if got := h.Operation(begun.ID); got.Done != 2 || got.State != operations.Running || got.Error != nil {
		t.Errorf("after the failure: %+v", got)
	}
	if due := schedulestest.One[time.Time](h, `SELECT due_at FROM operation`); due.Sub(began) < 500*time.Millisecond {
		t.Errorf("its next step is due %s after the one that failed began", due.Sub(began))
	}
	h.Exec(`UPDATE operation SET due_at = due_at + interval '1 hour'`) // it stays undue, however long the next lines take
	if got := h.Operate(begun.ID); got.Done != 2 {
		t.Errorf("it was tried again before it was due: %+v", got)
	}
	h.Exec(`UPDATE operation SET due_at = clock_timestamp()`)
	if got := h.Operate(begun.ID); got.State != operations.Succeeded || got.Counts["numbers"] != 5 {
		t.Errorf("at the end: %+v", got)
	}
	if got := schedulestest.One[int](h, `SELECT count(*) FROM counted`); got != 5 {
		t.Errorf("counted %d numbers", got)
	}
}

func TestAFaultEndsAnOperation(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	counting(h, func(_ *operations.Operation, n int) error {
		if n == 2 {
			return fault.Invalid("/to", "2 is unlucky")
		}
		return nil
	})
	begun := begin(h, operations.Request{Kind: "count", Params: countTo{5}})
	got := h.Operate(begun.ID)
	if got.State != operations.Failed || got.Error == nil || got.Done != 1 || got.EndedAt == nil {
		t.Errorf("got %+v", got)
	}
}

// After a fault that the service is busy, the step runs again.
func TestAnOperationOutlivesABusyService(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	failed := false
	counting(h, func(_ *operations.Operation, n int) error {
		if n == 2 && !failed {
			failed = true
			return fault.New(503, "busy", "others are at it")
		}
		return nil
	})
	begun := begin(h, operations.Request{Kind: "count", Params: countTo{5}})
	if err := h.Schedules.Operations.Run(t.Context(), schedulestest.OperationNumber(t, begun.ID)); err == nil || !failed {
		t.Errorf("got %v", err)
	}
	h.Exec(`UPDATE operation SET due_at = clock_timestamp()`)
	if got := h.Operate(begun.ID); got.State != operations.Succeeded || got.Error != nil || got.Done != 5 {
		t.Errorf("got %+v", got)
	}
}

func TestAnOperationThatAlwaysFailsEnds(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	counting(h, func(*operations.Operation, int) error { return errors.New("a secret") })
	begun := begin(h, operations.Request{Kind: "count", Params: countTo{5}})
	for range 20 {
		h.Exec(`UPDATE operation SET due_at = clock_timestamp()`)
		_ = h.Schedules.Operations.Run(t.Context(), schedulestest.OperationNumber(t, begun.ID))
	}
	if got := h.Operation(begun.ID); got.State != operations.Failed || got.Error == nil || *got.Error == "a secret" {
		t.Errorf("got %+v", got)
	}
}

func TestRunnersDoNotStepTogether(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	counting(h, steady)
	begun := begin(h, operations.Request{Kind: "count", Params: countTo{50}})
	id := schedulestest.OperationNumber(t, begun.ID)
	var runners sync.WaitGroup
	for range 4 {
		runners.Go(func() {
			for h.Operation(begun.ID).EndedAt == nil {
				if err := h.Schedules.Operations.Run(t.Context(), id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	runners.Wait()
	if got := h.Operation(begun.ID); got.Done != 50 || got.State != operations.Succeeded {
		t.Errorf("got %+v", got)
	}
}

// An operation that waits runs no step before its time. A cancellation does not wait.
func TestAnOperationWaits(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	counting(h, func(op *operations.Operation, n int) error {
		if n%2 == 0 {
			op.WaitUntil = op.Now.Add(time.Hour)
		}
		return nil
	})
	begun := begin(h, operations.Request{Kind: "count", Params: countTo{9}})
	for range 2 {
		if got := h.Operate(begun.ID); got.Done != 2 || got.State != operations.Running {
			t.Fatalf("got %+v", got)
		}
	}
	h.Exec(`UPDATE operation SET due_at = clock_timestamp()`)
	if got := h.Operate(begun.ID); got.Done != 4 {
		t.Errorf("got %+v", got)
	}
	if got, err := h.Schedules.Operations.Cancel(t.Context(), h.Acme, begun.ID); err != nil || got.State != operations.Cancelled {
		t.Errorf("got %+v, %v", got, err)
	}
}
