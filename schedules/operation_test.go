package schedules_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
)

// begin begins an operation of acme's.
func (h *home) begin(b operations.Request) operations.Answer {
	h.t.Helper()
	if b.Tenant == 0 {
		b.Tenant = h.acme
	}
	var begun operations.Answer
	err := pgx.BeginFunc(h.t.Context(), h.pool, func(tx pgx.Tx) (err error) {
		begun, err = h.schedules.Operations.Begin(h.t.Context(), tx, b)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return begun
}

// number is the number of an operation's row.
func number(t testing.TB, id string) int64 {
	t.Helper()
	ids, err := ident.New(make([]byte, ident.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	n, ok := ids.ParseOperation(id)
	if !ok {
		t.Fatalf("%q is not an operation's id", id)
	}
	return n
}

// operate runs an operation as far as it goes, and reads it.
func (h *home) operate(id string) operations.Answer {
	h.t.Helper()
	if err := h.schedules.Operations.Run(h.t.Context(), number(h.t, id)); err != nil {
		h.t.Fatal(err)
	}
	return h.operation(id)
}

func (h *home) operation(id string) operations.Answer {
	h.t.Helper()
	op, err := h.schedules.Operations.Get(h.t.Context(), h.acme, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return op
}

type countTo struct {
	To int `json:"to"`
}

// counting registers a kind that counts to a number, one a step, in a table of its own; each step calls also.
func (h *home) counting(also func(op *operations.Operation, n int) error) {
	h.t.Helper()
	h.exec(`CREATE TABLE counted (operation bigint, n int, PRIMARY KEY (operation, n)); GRANT ALL ON counted TO carillon_engine`)
	h.schedules.Operations.Register("count", func(ctx context.Context, tx pgx.Tx, op *operations.Operation) (bool, error) {
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

func TestOperationsOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.counting(steady)
	begun := e.begin(operations.Request{Kind: "count", Params: countTo{3}, By: "ann"})
	path := "/v1/operations/" + begun.ID
	a := e.want(200, "", "GET", path, "")
	if a.doc["state"] != "pending" || a.doc["created_by"] != "ann" || fmt.Sprint(a.doc["params"]) != "map[to:3]" || a.doc["total"] != nil {
		t.Errorf("got %s", a.body)
	}
	e.operate(begun.ID)
	a = e.want(200, "", "GET", path, "")
	if a.doc["state"] != "succeeded" || fmt.Sprintf("%v %v %v %v", a.doc["done"], a.doc["total"], a.doc["counts"], a.doc["result"]) != "3 3 map[numbers:3] map[last:3]" || a.doc["ended_at"] == nil {
		t.Errorf("got %s", a.body)
	}
	if again := e.want(200, "", "POST", path+"/cancel", ""); again.body != a.body {
		t.Errorf("cancelled after its end: %s", again.body)
	}
	second := e.begin(operations.Request{Kind: "count", Params: countTo{3}, By: "ann"})
	foreign := e.begin(operations.Request{Tenant: e.other, Kind: "count", Params: countTo{1}, By: "eve"})
	page := e.want(200, "", "GET", "/v1/operations?limit=1", "")
	if got := ids(page); got != second.ID {
		t.Errorf("the newest are %s, want %s", got, second.ID)
	}
	page = e.want(200, "", "GET", "/v1/operations?limit=1&cursor="+fmt.Sprint(page.doc["next_cursor"]), "")
	if got := ids(page); got != begun.ID || page.doc["next_cursor"] != nil {
		t.Errorf("got %s", page.body)
	}
	if got := ids(e.want(200, "", "GET", "/v1/operations?state=pending", "")); got != second.ID {
		t.Errorf("pending are %s", got)
	}
	for range 2 {
		if a := e.want(200, "", "POST", "/v1/operations/"+second.ID+"/cancel", ""); a.doc["state"] != "cancelled" {
			t.Errorf("got %s", a.body)
		}
	}
	if got := e.operate(second.ID); got.Done != 0 {
		t.Errorf("a cancelled one went on: %+v", got)
	}
	e.want(404, "not_found", "GET", "/v1/operations/"+foreign.ID, "")
	e.want(404, "not_found", "POST", "/v1/operations/"+foreign.ID+"/cancel", "")
	e.want(404, "not_found", "GET", "/v1/operations/op_nonsense", "")
	e.want(404, "not_found", "POST", "/v1/operations/op_nonsense/cancel", "")
	e.want(422, "invalid", "GET", "/v1/operations?state=asleep", "")
	e.want(422, "invalid", "GET", "/v1/operations?state=", "")
	e.want(422, "invalid_cursor", "GET", "/v1/operations?cursor=x", "")
	e.want(403, "insufficient_scope", "POST", path+"/cancel", "", "Authorization", "Bearer "+e.token("acme", tenants.SchedulesRead))
}

func ids(page answer) (joined string) {
	items, _ := page.doc["items"].([]any)
	for _, item := range items {
		joined += item.(map[string]any)["id"].(string)
	}
	return joined
}

// A step that fails leaves nothing behind, and is made again; what was done is not.
func TestAStepIsDoneOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	failing := errors.New("the network is down")
	failed := false
	h.counting(func(_ *operations.Operation, n int) error {
		if n == 3 && !failed {
			failed = true
			return failing
		}
		return nil
	})
	begun := h.begin(operations.Request{Kind: "count", Params: countTo{5}})
	id := number(t, begun.ID)
	if err := h.schedules.Operations.Run(t.Context(), id); !errors.Is(err, failing) {
		t.Fatalf("got %v", err)
	}
	if got := h.operation(begun.ID); got.Done != 2 || got.State != operations.Running || got.Error != nil {
		t.Errorf("after the failure: %+v", got)
	}
	if got := h.operate(begun.ID); got.Done != 2 {
		t.Errorf("it was tried again at once: %+v", got)
	}
	h.exec(`UPDATE operation SET due_at = clock_timestamp()`)
	if got := h.operate(begun.ID); got.State != operations.Succeeded || got.Counts["numbers"] != 5 {
		t.Errorf("at the end: %+v", got)
	}
	if got := one[int](h, `SELECT count(*) FROM counted`); got != 5 {
		t.Errorf("counted %d numbers", got)
	}
}

func TestAFaultEndsAnOperation(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.counting(func(_ *operations.Operation, n int) error {
		if n == 2 {
			return fault.Invalid("/to", "2 is unlucky")
		}
		return nil
	})
	begun := h.begin(operations.Request{Kind: "count", Params: countTo{5}})
	got := h.operate(begun.ID)
	if got.State != operations.Failed || got.Error == nil || got.Done != 1 || got.EndedAt == nil {
		t.Errorf("got %+v", got)
	}
}

// A fault that says that the service is busy is ours: the step is tried again.
func TestAnOperationOutlivesABusyService(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	failed := false
	h.counting(func(_ *operations.Operation, n int) error {
		if n == 2 && !failed {
			failed = true
			return fault.New(503, "busy", "others are at it")
		}
		return nil
	})
	begun := h.begin(operations.Request{Kind: "count", Params: countTo{5}})
	if err := h.schedules.Operations.Run(t.Context(), number(t, begun.ID)); err == nil || !failed {
		t.Errorf("got %v", err)
	}
	h.exec(`UPDATE operation SET due_at = clock_timestamp()`)
	if got := h.operate(begun.ID); got.State != operations.Succeeded || got.Error != nil || got.Done != 5 {
		t.Errorf("got %+v", got)
	}
}

func TestAnOperationThatAlwaysFailsEnds(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.counting(func(*operations.Operation, int) error { return errors.New("a secret") })
	begun := h.begin(operations.Request{Kind: "count", Params: countTo{5}})
	for range 20 {
		h.exec(`UPDATE operation SET due_at = clock_timestamp()`)
		_ = h.schedules.Operations.Run(t.Context(), number(t, begun.ID))
	}
	if got := h.operation(begun.ID); got.State != operations.Failed || got.Error == nil || *got.Error == "a secret" {
		t.Errorf("got %+v", got)
	}
}

func TestRunnersDoNotStepTogether(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.counting(steady)
	begun := h.begin(operations.Request{Kind: "count", Params: countTo{50}})
	id := number(t, begun.ID)
	var runners sync.WaitGroup
	for range 4 {
		runners.Go(func() {
			for h.operation(begun.ID).EndedAt == nil {
				if err := h.schedules.Operations.Run(t.Context(), id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	runners.Wait()
	if got := h.operation(begun.ID); got.Done != 50 || got.State != operations.Succeeded {
		t.Errorf("got %+v", got)
	}
}

func TestCancelIsSeenBetweenSteps(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var begun operations.Answer
	h.counting(func(_ *operations.Operation, n int) error {
		if n != 3 {
			return nil
		}
		got, err := h.schedules.Operations.Cancel(t.Context(), h.acme, begun.ID)
		if err == nil && got.State != operations.Running {
			err = fmt.Errorf("it is %s within a step", got.State)
		}
		return err
	})
	begun = h.begin(operations.Request{Kind: "count", Params: countTo{9}})
	if got := h.operate(begun.ID); got.State != operations.Cancelled || got.Done != 3 {
		t.Errorf("got %+v", got)
	}
}

// One that waits is not stepped before its time; cancelling it does not wait.
func TestAnOperationWaits(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.counting(func(op *operations.Operation, n int) error {
		if n%2 == 0 {
			op.WaitUntil = op.Now.Add(time.Hour)
		}
		return nil
	})
	begun := h.begin(operations.Request{Kind: "count", Params: countTo{9}})
	for range 2 {
		if got := h.operate(begun.ID); got.Done != 2 || got.State != operations.Running {
			t.Fatalf("got %+v", got)
		}
	}
	h.exec(`UPDATE operation SET due_at = clock_timestamp()`)
	if got := h.operate(begun.ID); got.Done != 4 {
		t.Errorf("got %+v", got)
	}
	if got, err := h.schedules.Operations.Cancel(t.Context(), h.acme, begun.ID); err != nil || got.State != operations.Cancelled {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestOperationsAreLimitedAndCleared(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.counting(steady)
	old := h.begin(operations.Request{Kind: "count", Params: countTo{1}})
	h.operate(old.ID)
	h.exec(`INSERT INTO operation (tenant_id, kind, started_by, params) SELECT $1, 'count', 'ann', '{"to":1}' FROM generate_series(1, 100)`, h.acme)
	err := pgx.BeginFunc(t.Context(), h.pool, func(tx pgx.Tx) error {
		_, err := h.schedules.Operations.Begin(t.Context(), tx, operations.Request{Tenant: h.acme, Kind: "count", Params: countTo{1}})
		return err
	})
	faulty(t, err, 409, "too_many_operations")
	if _, err := h.schedules.Operations.Clear(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	h.operation(old.ID)
	h.exec(`UPDATE operation SET ended_at = ended_at - interval '8 days' WHERE ended_at IS NOT NULL`)
	if _, err := h.schedules.Operations.Clear(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := h.schedules.Operations.Get(t.Context(), h.acme, old.ID); err == nil {
		t.Error("it is there after eight days")
	}
}
