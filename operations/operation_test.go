package operations_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// begin begins an operation of acme, unless b names another tenant.
func begin(h *schedulestest.Fixture, b operations.Request) operations.Answer {
	h.T.Helper()
	if b.Tenant == 0 {
		b.Tenant = h.Acme
	}
	var begun operations.Answer
	err := pgx.BeginFunc(h.T.Context(), h.Pool, func(tx pgx.Tx) (err error) {
		begun, err = h.Schedules.Operations.Begin(h.T.Context(), tx, b)
		return err
	})
	if err != nil {
		h.T.Fatal(err)
	}
	return begun
}

func TestCancelIsSeenBetweenSteps(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	var begun operations.Answer
	counting(h, func(_ *operations.Operation, n int) error {
		if n != 3 {
			return nil
		}
		got, err := h.Schedules.Operations.Cancel(t.Context(), h.Acme, begun.ID)
		if err == nil && got.State != operations.Running {
			err = fmt.Errorf("it is %s within a step", got.State)
		}
		return err
	})
	begun = begin(h, operations.Request{Kind: "count", Params: countTo{9}})
	if got := h.Operate(begun.ID); got.State != operations.Cancelled || got.Done != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestOperationsAreLimitedAndCleared(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	counting(h, steady)
	old := begin(h, operations.Request{Kind: "count", Params: countTo{1}})
	h.Operate(old.ID)
	h.Exec(`INSERT INTO operation (tenant_id, kind, started_by, params) SELECT $1, 'count', 'ann', '{"to":1}' FROM generate_series(1, 100)`, h.Acme)
	err := pgx.BeginFunc(t.Context(), h.Pool, func(tx pgx.Tx) error {
		_, err := h.Schedules.Operations.Begin(t.Context(), tx, operations.Request{Tenant: h.Acme, Kind: "count", Params: countTo{1}})
		return err
	})
	schedulestest.WantFault(t, err, 409, "too_many_operations")
	if _, err := h.Schedules.Operations.Clear(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	h.Operation(old.ID)
	h.Exec(`UPDATE operation SET ended_at = clock_timestamp() - interval '7 days' WHERE ended_at IS NOT NULL`)
	if _, err := h.Schedules.Operations.Clear(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Schedules.Operations.Get(t.Context(), h.Acme, old.ID); err == nil {
		t.Error("it is there after seven days")
	}
}
