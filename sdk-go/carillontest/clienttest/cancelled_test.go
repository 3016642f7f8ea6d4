package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// A tick that was leased ahead and waits for a slot is kept by heartbeats, and is not run once it is cancelled.
func TestCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		ctx := t.Context()
		put := func(key, at string, payload bool) {
			t.Helper()
			_, err := server.Client().Schedules.Put(ctx, "w", key, carillon.Params{Spec: carillon.Spec{At: []string{at}}, Payload: payload})
			if err != nil {
				t.Fatal(err)
			}
		}
		// Quick ones first, so that the worker leases ahead; then one that takes long, and one behind it.
		for i := range 60 {
			put(fmt.Sprint("quick", i), "2026-01-05T00:00:01", false)
		}
		put("long", "2026-01-05T00:00:02", true)
		put("behind", "2026-01-05T00:00:03", false)
		ran := map[string]bool{}
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet, Concurrency: 1, Lease: 10 * time.Second})
		carillon.Handle(w, "w", func(_ context.Context, tick carillon.Tick[bool]) error {
			ran[tick.Key] = true
			if tick.Payload {
				time.Sleep(time.Minute)
			}
			return nil
		})
		stop := running(t, w)
		server.AdvanceBy(time.Second)
		time.Sleep(10 * time.Second)
		server.AdvanceBy(time.Minute)
		time.Sleep(30 * time.Second)
		r := record(t, server, "behind")
		if r.State != "running" || r.Attempt != 1 {
			t.Fatalf("got %s in attempt %d, want it leased ahead", r.State, r.Attempt)
		}
		server.Cancel(r.TickID)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if r := record(t, server, "behind"); r.State != "cancelled" || ran["behind"] {
			t.Errorf("got %s, ran: %t", r.State, ran["behind"])
		}
		if r := record(t, server, "long"); r.State != "succeeded" || r.Attempt != 1 {
			t.Errorf("got %s in attempt %d", r.State, r.Attempt)
		}
	})
}

// A result that comes after the tick was told to stop is shown with the attempt, not with the tick.
func TestALateResultIsThatOfTheAttempt(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	c := server.Client()
	due(t, server, 1)
	got, err := c.Ticks.Lease(t.Context(), carillon.LeaseParams{Workflows: []string{"w"}, Max: 1, Lease: time.Minute})
	if err != nil || len(got) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	server.Cancel(got[0].TickID)
	if err := c.Ticks.Complete(t.Context(), got[0].TickID, got[0].LeaseToken, json.RawMessage("7")); err != nil {
		t.Fatal(err)
	}
	r := record(t, server, "k0")
	if r.State != "cancelled" || r.Result != nil || len(r.Attempts) != 1 || r.Attempts[0].Outcome != "cancelled" || string(r.Attempts[0].Result) != "7" {
		t.Errorf("got %+v", r)
	}
}
