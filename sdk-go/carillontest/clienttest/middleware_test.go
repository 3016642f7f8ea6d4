package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// one runs the one due tick of workflow w with a worker, and returns its record.
func one(t *testing.T, server *carillontest.Server, w *carillon.Worker) carillon.TickRecord {
	t.Helper()
	due(t, server, 1)
	stop := running(t, w)
	time.Sleep(time.Second) // of the bubble's clock
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	return record(t, server, "k0")
}

// The first middleware is the outermost, and each sees what the function returns, a panic too.
func TestMiddlewareWrapsHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		var seen []string
		say := func(name string) func(carillon.Handler) carillon.Handler {
			return func(next carillon.Handler) carillon.Handler {
				return func(ctx context.Context, t none) (any, error) {
					seen = append(seen, name+" in")
					result, err := next(ctx, t)
					seen = append(seen, fmt.Sprintf("%s out: %v", name, err))
					if name == "outer" {
						err = nil
					}
					return result, err
				}
			}
		}
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet})
		w.Use(say("outer"), say("inner"))
		carillon.Handle(w, "w", func(context.Context, none) error { panic(errCut) })
		r := one(t, server, w)
		want := []string{"outer in", "inner in", "inner out: panic: " + errCut.Error(), "outer out: panic: " + errCut.Error()}
		if !slices.Equal(seen, want) || r.State != "succeeded" {
			t.Errorf("got %q and %s, want %q", seen, r.State, want)
		}
	})
}

func TestMiddlewareThatPanicsIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet})
		w.Use(func(carillon.Handler) carillon.Handler {
			return func(context.Context, none) (any, error) { panic("no span") }
		})
		carillon.Handle(w, "w", func(context.Context, none) error { return nil })
		if r := one(t, server, w); r.Error != "panic: no span" {
			t.Errorf("got %s with %q", r.State, r.Error)
		}
	})
}

// A dropped tick is done: it has no further attempt, and the history says why.
func TestDroppedTickSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet})
		carillon.HandleResult(w, "w", func(context.Context, none) (int, error) {
			return 7, fmt.Errorf("look up the user: %w", carillon.Drop("the user has left"))
		})
		if r := one(t, server, w); r.State != "succeeded" || string(r.Result) != `{"dropped":"the user has left"}` {
			t.Errorf("got %s with %s", r.State, r.Result)
		}
	})
}

func TestHooksCountWhatAWorkerDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 20)
		var mu sync.Mutex
		var leased, started, ended, failed, reported int
		count := func(change func()) {
			mu.Lock()
			defer mu.Unlock()
			change()
		}
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet, Hooks: carillon.Hooks{
			Leased:  func(l carillon.LeasedTicks) { count(func() { leased += l.Ticks }) },
			Started: func(context.Context, none) { count(func() { started++ }) },
			Ended: func(_ context.Context, e carillon.EndedTick) {
				count(func() {
					ended++
					if errors.Is(e.Err, errCut) && e.Took >= time.Second {
						failed++
					}
				})
			},
			Reported: func(r carillon.ReportedTicks) { count(func() { reported += r.Ticks - r.Late }) },
		}})
		carillon.Handle(w, "w", func(_ context.Context, tick carillon.Tick[int]) error {
			time.Sleep(time.Second)
			return errIf(tick.Payload < 5)
		})
		stop := running(t, w)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if leased != 20 || started != 20 || ended != 20 || failed != 5 || reported != 20 {
			t.Errorf("got %d leased, %d started, %d ended, %d failed, %d reported", leased, started, ended, failed, reported)
		}
	})
}

// A workflow with a limit never runs more at once, holds no other workflow back, and all together keep to the worker's limit.
func TestConcurrencyOfAWorkflowIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		for _, workflow := range []string{"slow", "fast", "more"} {
			for i := range 50 {
				_, err := server.Client().Schedules.Put(t.Context(), workflow, fmt.Sprint(i), carillon.Params{Spec: carillon.Spec{At: []string{"2026-01-05T00:00:01"}}})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		server.AdvanceBy(time.Minute)
		var mu sync.Mutex
		now, most, done := map[string]int{}, map[string]int{}, map[string]int{}
		handler := func(takes time.Duration) func(context.Context, none) error {
			return func(_ context.Context, tick none) error {
				names := []string{tick.Workflow, "all"}
				mu.Lock()
				for _, name := range names {
					now[name]++
					most[name] = max(most[name], now[name])
				}
				mu.Unlock()
				time.Sleep(takes)
				mu.Lock()
				for _, name := range names {
					now[name]--
					done[name]++
				}
				mu.Unlock()
				return nil
			}
		}
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet, Concurrency: 8})
		carillon.Handle(w, "slow", handler(time.Minute), carillon.HandlerConfig{Concurrency: 2})
		carillon.Handle(w, "fast", handler(time.Second))
		carillon.Handle(w, "more", handler(time.Second))
		stop := running(t, w)
		time.Sleep(30 * time.Second)
		mu.Lock()
		if done["fast"] != 50 || done["more"] != 50 || done["slow"] != 0 {
			t.Errorf("after 30s got %v", done)
		}
		mu.Unlock()
		time.Sleep(30 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if done["slow"] != 50 || most["slow"] != 2 || most["all"] > 8 || most["all"] < 7 {
			t.Errorf("got %v, at most %v at once", done, most)
		}
	})
}

// mark is a tracing library in a few lines: it names each span by the trace that it continues.
type mark struct{}

type markKey struct{}

func (mark) Extract(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, markKey{}, "child of "+traceparent)
}

func (mark) Inject(ctx context.Context) string {
	span, _ := ctx.Value(markKey{}).(string)
	return span
}

// The trace of a tick reaches its handler, and the requests that the handler makes with its context.
func TestTraceGoesThroughTheHandler(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, test := range map[string]struct {
		propagator carillon.Propagator
		sent       string
	}{"none": {nil, parent}, "a propagator": {mark{}, "child of " + parent}} {
		var sent string
		server := newEcho(t, func(traceparent string) { sent = traceparent })
		c, err := carillon.New(carillon.Config{URL: server, Token: "t", Propagator: test.propagator, Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		h := webhook(t, carillon.WebhookConfig{Propagator: test.propagator}, func(ctx context.Context, tick carillon.Tick[json.RawMessage]) error {
			if carillon.Traceparent(ctx) != parent {
				t.Errorf("%s: the handler's context has the trace %q", name, carillon.Traceparent(ctx))
			}
			return c.Ticks.Complete(ctx, tick.TickID, tick.LeaseToken, nil)
		})
		r := signed(t, `{"tick_id":"t1","workflow":"w","lease_token":"l"}`)
		r.Header.Set("traceparent", parent)
		if answer := send(h, r); answer.Code != 204 || sent != test.sent {
			t.Errorf("%s: got %d, and the request continued %q, want %q", name, answer.Code, sent, test.sent)
		}
	}
}
