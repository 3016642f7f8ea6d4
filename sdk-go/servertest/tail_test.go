package servertest

import (
	"context"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// The tail shows a tick that fires after it began, and a later tail continues after the last tick of an earlier one.
func TestTheSDKFollowsTicks(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client(t)
	self := must[carillon.Self](t)(c.Self(ctx))
	// The transport of c reads an answer to its end, and a tail has none.
	follower, err := carillon.New(carillon.Config{URL: server.URL, Token: token(t, self.Tenant)})
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	trigger := func() string {
		return must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{})).TickID
	}
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "k", carillon.Params{Spec: carillon.Cron("0 0 1 1 *"), Policy: carillon.Policy{Overlap: "allow_all"}}))
	first, last := "", ""
	for e, err := range follower.Ticks.Tail(ctx, carillon.TailParams{TickScope: carillon.TickScope{Workflow: "w"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Second != nil && first == "" { // it follows
			first = trigger()
		}
		if e.Tick != nil {
			if e.Tick.TickID != first || e.Tick.Kind != "fired" || e.ID == "" || e.Tick.Key != "k" {
				t.Errorf("got %+v, want the tick %s", e.Tick, first)
			}
			last = e.ID
			break
		}
	}
	second := trigger()
	for e, err := range follower.Ticks.Tail(ctx, carillon.TailParams{After: last}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Tick != nil && e.Tick.TickID == second {
			return
		}
	}
	t.Errorf("the tick %s did not come", second)
}
