package control_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// ofSubject returns params of a schedule for a subject that fires only when it is triggered.
func ofSubject(subject, overlap string, labels map[string]string) schedules.Params {
	p := dispatchtest.Rarely(overlap)
	p.Subject, p.Labels = subject, labels
	return p
}

func trigger(h *dispatchtest.Carillon, workflow, key, in string) history.Tick {
	h.T.Helper()
	one, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, workflow, key, control.TriggerParams{In: in}, once.Request{})
	if err != nil {
		h.T.Fatal(err)
	}
	return one
}

func cancelSubject(h *dispatchtest.Carillon, subject string, p subjects.CancelParams) (subjects.Cancelled, *subjects.Cancelling) {
	h.T.Helper()
	done, begun, _, err := h.Subjects.Cancel(h.T.Context(), h.Tenant, subject, p, schedules.Changer{By: "ann"})
	if err != nil {
		h.T.Fatal(err)
	}
	return done, begun
}

// A subject has ticks in every state. Its cancellation ends what waits, and tells the worker of what runs to stop.
func TestASubjectIsCancelledWithAllThatIsPlanned(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	h.Put("run", "u/1", ofSubject("u", "buffer_all", nil))
	h.Put("ready", "u", ofSubject("", "allow_all", nil))
	h.Put("ended", "u/2", ofSubject("u", "allow_all", nil))
	h.Put("retry", "u/3", ofSubject("u", "allow_all", nil))
	h.Put("gone", "u/4", ofSubject("u", "allow_all", nil))
	h.Put("other", "v", ofSubject("", "allow_all", nil)) // a workflow of its own: a row of ready may hold several ticks
	running, buffered := trigger(h, "run", "u/1", ""), trigger(h, "run", "u/1", "")
	held := h.Lease("run", 1)[0]
	done := trigger(h, "ended", "u/2", "")
	h.Finish(h.Lease("ended", 1)[0])
	again := trigger(h, "retry", "u/3", "")
	h.End(h.Lease("retry", 1)[0], "fail", true)
	ofGone := trigger(h, "gone", "u/4", "")
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "gone", "u/4", schedules.Changer{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	ready, later, other := trigger(h, "ready", "u", ""), trigger(h, "ready", "u", "1h"), trigger(h, "other", "v", "")
	dispatchtest.Until(t, "ticks wait for a worker", func() bool { return h.Number(`SELECT count(*) FROM ready`) == 4 })

	got, begun := cancelSubject(h, "u", subjects.CancelParams{})
	if want := (subjects.Cancelled{Schedules: 4, Ticks: 6}); got != want || begun != nil {
		t.Errorf("got %+v and %+v, want %+v", got, begun, want)
	}
	for _, want := range []struct {
		of    history.Tick
		state string
	}{
		{running, "running"}, {buffered, "cancelled"}, {done, "succeeded"}, {again, "cancelled"}, {ofGone, "cancelled"}, {ready, "cancelled"}, {later, "cancelled"}, {other, "running"},
	} {
		is := dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+want.of.TickID, "")
		asked := want.state == "cancelled" || want.of.TickID == running.TickID
		if is.State != want.state || asked != (is.Reason == "requested") {
			t.Errorf("the tick of %s/%s is %s %s, want %s", is.Workflow, is.Key, is.State, is.Reason, want.state)
		}
	}
	c.Refused(409, "cancelled", "", "POST", "/v1/ticks/"+held.TickID+"/heartbeat", `{"lease_token": "`+held.LeaseToken+`"}`)
	h.Finish(held)
	if is := dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+running.TickID, ""); is.State != "cancelled" {
		t.Errorf("the running tick ended as %s", is.State)
	}
	h.Finish(h.Lease("other", 10)[0])
	h.Idle()
	if n := h.Number(`SELECT count(*) FROM schedule`); n != 1 {
		t.Errorf("%d schedules are left", n)
	}
	if got, _ := cancelSubject(h, "u", subjects.CancelParams{}); got != (subjects.Cancelled{}) {
		t.Errorf("a second time: got %+v", got)
	}
}

func TestACancellationIsRestricted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	for _, workflow := range []string{"a", "b"} {
		for _, meal := range []string{"yes", "no"} {
			h.Put(workflow, "u/"+meal, ofSubject("u", "allow_all", map[string]string{"meal": meal}))
			trigger(h, workflow, "u/"+meal, "1h")
		}
	}
	for _, step := range []struct {
		params subjects.CancelParams
		want   subjects.Cancelled
	}{
		{subjects.CancelParams{Workflow: "c"}, subjects.Cancelled{}},
		{subjects.CancelParams{Label: "meal:maybe"}, subjects.Cancelled{}},
		{subjects.CancelParams{Workflow: "a", Label: "meal:yes"}, subjects.Cancelled{Schedules: 1, Ticks: 1}},
		{subjects.CancelParams{Label: "meal:yes"}, subjects.Cancelled{Schedules: 1, Ticks: 1}},
		{subjects.CancelParams{Workflow: "b"}, subjects.Cancelled{Schedules: 1, Ticks: 1}},
		{subjects.CancelParams{}, subjects.Cancelled{Schedules: 1, Ticks: 1}},
	} {
		if got, _ := cancelSubject(h, "u", step.params); got != step.want {
			t.Errorf("%+v: got %+v, want %+v", step.params, got, step.want)
		}
	}
	h.Idle()
}

// A subject with many schedules is cancelled by an operation.
func TestASubjectOfManySchedulesIsCancelledByAnOperation(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const n = 1001
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"workflow": "w", "key": "k%d", "subject": "u", "spec": {"cron": "0 0 1 1 *"}}`+"\n", i)
	}
	sum, err := h.InBulk.Upsert(t.Context(), h.Tenant, "t", io.NopCloser(strings.NewReader(lines.String())), func([]bulk.Result) error { return nil })
	if err != nil || sum.Inserted != n {
		t.Fatalf("got %+v, %v", sum, err)
	}
	h.Put("w", "v", ofSubject("", "allow_all", nil))
	trigger(h, "w", "k7", "1h")
	done, begun := cancelSubject(h, "u", subjects.CancelParams{})
	if begun == nil || done != (subjects.Cancelled{}) {
		t.Fatalf("got %+v, %+v", done, begun)
	}
	h.Put("w", "made later", ofSubject("u", "allow_all", nil))
	h.Start(h.Dispatch)
	if op := h.Ended(begun.Operation.ID); op.State != "succeeded" || op.Counts["schedules"] != n || op.Counts["ticks"] != 1 {
		t.Errorf("got %+v", op)
	}
	if n := h.Number(`SELECT count(*) FROM schedule`); n != 2 {
		t.Errorf("%d schedules are left, want that of another subject and that which was made later", n)
	}
	h.Idle()
}

// A cancellation beside workers that finish and triggers that come loses nothing, and never fails.
func TestACancellationBesideWorkers(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	const n = 10
	for i := range n {
		h.Put("w", fmt.Sprint("k", i), ofSubject("u", "buffer_all", nil))
	}
	for i := range n {
		for range 3 {
			trigger(h, "w", fmt.Sprint("k", i), "")
		}
	}
	leased := h.Lease("w", n)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, one := range leased {
			h.Finish(one)
		}
	}()
	cancelSubject(h, "u", subjects.CancelParams{})
	<-ended
	dispatchtest.Until(t, "all ticks have ended", func() bool {
		leasesNothing(h, "w") // a tick that got ready beside its withdrawal ends when a worker polls
		return h.Number(`SELECT count(*) FROM tick WHERE state IN (0, 1)`) == 0
	})
	h.Idle()
	if got := h.Number(`SELECT count(*) FROM tick`); got != 3*n {
		t.Errorf("%d ticks are recorded, want %d", got, 3*n)
	}
}

// A cancellation waits for the end of a running tick, and holds nothing meanwhile that the end needs.
func TestACancellationHoldsNothingThatTheEndOfATickNeeds(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("w", "k", ofSubject("u", "allow_all", nil))
	trigger(h, "w", "k", "")
	h.Lease("w", 1)
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // it may be over
	if _, err := tx.Exec(t.Context(), `SELECT FROM tick FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	cancelled := make(chan error, 1)
	go func() {
		_, _, _, err := h.Subjects.Cancel(t.Context(), h.Tenant, "u", subjects.CancelParams{}, schedules.Changer{By: "ann"})
		cancelled <- err
	}()
	dispatchtest.Until(t, "the cancellation waits for the tick", func() bool {
		return len(cancelled) > 0 || h.Number(`
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FROM tick%'`) > 0
	})
	if _, err := tx.Exec(t.Context(), `SELECT FROM schedule_state FOR UPDATE NOWAIT`); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-cancelled; err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE reason <> 0`); n != 1 {
		t.Errorf("%d ticks were told to stop, want 1", n)
	}
}

// leasesNothing polls once without waiting, and checks that no tick is handed out.
func leasesNothing(h *dispatchtest.Carillon, workflow string) {
	h.T.Helper()
	body, err := h.Dispatch.Leases.Lease(h.T.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{workflow}, Max: new(100), Wait: "0s"}, nil)
	if err != nil {
		h.T.Fatal(err)
	}
	if got := dispatchtest.TicksOf(h.T, body); len(got) != 0 {
		h.T.Errorf("leased %+v", got)
	}
}
