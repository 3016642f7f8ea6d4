package message_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// changes is a schedule of workflow w whose version, labels and lateness change while a tick of it is under way.
type changes struct {
	*dispatchtest.Carillon
	endpoint *string
}

// store registers a version of the workflow, and puts the schedule with a label. It may be called by another goroutine than the test's.
func (c *changes) store(versionOf *string, label string) {
	p := dispatchtest.Rarely("allow_all")
	p.Policy.OnExpired, p.Policy.MaxLateness, p.Labels = "deliver", "1h", map[string]string{"plan": label}
	p.Delivery = &policy.Delivery{MaxAttempts: new(3)}
	if _, _, err := c.Schedules.PutWorkflow(c.T.Context(), c.Tenant, "w", schedules.WorkflowParams{Endpoint: c.endpoint, Version: versionOf}); err != nil {
		c.T.Error(err)
	}
	of := policy.Name{Tenant: c.Tenant, Workflow: "w", Key: "k"}
	if _, _, err := c.Schedules.Put(c.T.Context(), of, p, "ann", version.Precondition{}); err != nil {
		c.T.Error(err)
	}
}

func (c *changes) fire() {
	c.T.Helper()
	if _, _, err := c.Dispatch.Control.Trigger(c.T.Context(), c.Tenant, "w", "k", control.TriggerParams{}, once.Request{}); err != nil {
		c.T.Fatal(err)
	}
}

// expire makes every tick of earlier versions of the schedule later than it may be.
func (c *changes) expire() {
	if _, err := c.Pool.Exec(c.T.Context(), `UPDATE revision SET max_lateness_s = 1`); err != nil {
		c.T.Error(err)
	}
}

func told(one dispatchtest.Handed) string {
	shown := "null"
	if one.Version != nil {
		shown = *one.Version
	}
	return fmt.Sprint(one.Attempt, " ", shown, " ", one.Labels["plan"], " ", one.Expired != nil && *one.Expired)
}

// Each attempt of a pushed tick has the version and the labels that were in force when the tick fired. An attempt that comes only because
// on_expired is deliver says so.
func TestAPushShowsWhatHeldWhenTheTickFired(t *testing.T) {
	t.Parallel()
	c := &changes{Carillon: dispatchtest.New(t), endpoint: new("w")}
	caught := c.Catcher("w", 1, nil)
	changed := ""
	caught.AnswerEach(func(one dispatchtest.Handed, w http.ResponseWriter) {
		if changed == "" {
			changed = one.TickID
			c.store(new("2"), "free")
			c.expire()
		}
		if one.TickID == changed && one.Attempt == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(503)
		}
	})
	attempts := func() (first []dispatchtest.Handed) { // each as it was sent first
		for _, one := range caught.Caught() {
			if !slices.ContainsFunc(first, func(f dispatchtest.Handed) bool { return f.TickID == one.TickID && f.Attempt == one.Attempt }) {
				first = append(first, one)
			}
		}
		return first
	}
	c.store(new("1"), "pro")
	c.Start(c.Dispatch)
	c.fire()
	dispatchtest.Until(t, "it was sent again", func() bool { return len(attempts()) == 2 })
	c.fire()
	dispatchtest.Until(t, "the next was sent", func() bool { return len(attempts()) == 3 })
	for i, want := range []string{"1 1 pro false", "2 1 pro true", "1 2 free false"} {
		if got := told(attempts()[i]); got != want {
			t.Errorf("request %d: got %s, want %s", i+1, got, want)
		}
	}
}

func TestALeaseShowsWhatHeldWhenTheTickFired(t *testing.T) {
	t.Parallel()
	c := &changes{Carillon: dispatchtest.New(t)}
	c.Start(c.Dispatch)
	take := func(want string) dispatchtest.Handed {
		t.Helper()
		all := c.Lease("w", 10)
		if len(all) != 1 || told(all[0]) != want {
			t.Fatalf("got %+v, want %s", all, want)
		}
		return all[0]
	}
	end := func(f lease.Finish) {
		t.Helper()
		if r, err := c.Dispatch.Leases.Finish(t.Context(), c.Tenant, []lease.Finish{f}); err != nil || r[0] != lease.Done {
			t.Fatalf("got %v %v", r, err)
		}
	}
	c.store(nil, "pro")
	c.fire()
	one := take("1 null pro false")
	c.store(new("1"), "free")
	end(lease.Finish{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "fail", Error: "no paper"})
	c.expire()
	dispatchtest.Until(t, "it is late", func() bool {
		return c.Number(`SELECT count(*) FROM tick WHERE nominal_at < clock_timestamp() - interval '1 second'`) == 1
	})
	one = take("2 null pro true")
	end(lease.Finish{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"})
	c.fire()
	c.store(nil, "none")
	one = take("1 1 free false")
	end(lease.Finish{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"})
	c.fire()
	take("1 null none false")
}
