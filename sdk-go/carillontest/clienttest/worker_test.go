package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

var quiet = slog.New(slog.DiscardHandler)

type none = carillon.Tick[json.RawMessage]

// wire calls before with each request that a worker sends to its server.
type wire struct {
	http.RoundTripper
	before func(*http.Request) error // an error cuts the connection
}

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := w.before(r); err != nil {
		return nil, err
	}
	return w.RoundTripper.RoundTrip(r)
}

func over(t *testing.T, server *carillontest.Server, before func(*http.Request) error) *carillon.Client {
	t.Helper()
	c, err := carillon.New(carillon.Config{
		URL: "http://carillon.test", Token: carillontest.Token,
		HTTPClient: &http.Client{Transport: wire{server.Transport(), before}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// due makes n schedules k0, k1, … of workflow w, each with one tick that is due.
func due(t *testing.T, server *carillontest.Server, n int) {
	t.Helper()
	for i := range n {
		_, err := server.Client().Schedules.Put(t.Context(), "w", fmt.Sprintf("k%d", i), carillon.Params{
			Spec: carillon.Spec{At: []string{"2026-01-05T00:00:01"}}, Payload: i,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	server.AdvanceBy(time.Minute)
}

// running starts a worker, and returns how to stop it and learn what Run said.
func running(t *testing.T, w *carillon.Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func record(t *testing.T, server *carillontest.Server, key string) carillon.TickRecord {
	t.Helper()
	for r, err := range server.Client().Schedules.Ticks(context.WithoutCancel(t.Context()), "w", key, carillon.TickFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Fatalf("%s has no tick", key)
	return carillon.TickRecord{}
}

// A tick's handler ends in many ways; each has its end in the history.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle   func(attempt int) error
		state    string
		attempts int
		says     string // the error of the last attempt
	}{
		"success":             {func(int) error { return nil }, "succeeded", 1, ""},
		"failure, then not":   {func(n int) error { return errIf(n < 3) }, "succeeded", 3, ""},
		"failure for good":    {func(int) error { return carillon.Permanent(errCut) }, "failed", 1, errCut.Error()},
		"wrapped for good":    {func(int) error { return fmt.Errorf("charge: %w", carillon.Permanent(errCut)) }, "failed", 1, "charge: " + errCut.Error()},
		"attempts used up":    {func(int) error { return errCut }, "failed", 4, errCut.Error()},
		"panic":               {func(int) error { panic("no such row") }, "failed", 4, "panic: no such row"},
		"the goroutine ended": {func(int) error { runtime.Goexit(); return nil }, "failed", 4, "the handler ended its goroutine"},
		"accepted by nobody":  {func(int) error { return carillon.Later }, "failed", 4, carillon.Later.Error()},
		"no text":             {func(int) error { return errors.New("") }, "failed", 4, "failed with an error that has no text"},
		"not UTF-8":           {func(int) error { return errors.New("a\x00\xffb") }, "failed", 4, "a\uFFFD\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := carillontest.New()
				_, err := server.Client().Schedules.Put(t.Context(), "w", "k0", carillon.Params{
					Spec: carillon.Spec{At: []string{"2026-01-05T00:00:01"}}, Delivery: carillon.Delivery{MaxAttempts: 4},
				})
				if err != nil {
					t.Fatal(err)
				}
				w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet})
				carillon.Handle(w, "w", func(_ context.Context, tick none) error { return test.handle(tick.Attempt) })
				stop := running(t, w)
				for range 6 {
					server.AdvanceBy(time.Minute)
					synctest.Wait()
					time.Sleep(time.Second) // of the bubble's clock
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				r := record(t, server, "k0")
				if r.State != test.state || r.Attempt != test.attempts || r.Error != test.says {
					t.Errorf("got %s after %d attempts with %q, want %s after %d with %q", r.State, r.Attempt, r.Error, test.state, test.attempts, test.says)
				}
			})
		})
	}
}

func errIf(yes bool) error {
	if yes {
		return errCut
	}
	return nil
}

func TestRetryAfterSaysWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 1)
		runs := 0
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet})
		carillon.Handle(w, "w", func(_ context.Context, tick none) error {
			runs++
			if tick.Attempt == 1 {
				return carillon.RetryAfter(errCut, 90*time.Second)
			}
			return nil
		})
		stop := running(t, w)
		for _, want := range []struct {
			advance time.Duration
			runs    int
		}{{0, 1}, {89 * time.Second, 1}, {time.Second, 2}} {
			server.AdvanceBy(want.advance)
			time.Sleep(time.Second)
			synctest.Wait()
			if runs != want.runs {
				t.Errorf("got %d runs after another %s, want %d", runs, want.advance, want.runs)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if r := record(t, server, "k0"); r.State != "succeeded" || r.Attempts[0].Error != errCut.Error() {
			t.Errorf("got %+v", r)
		}
	})
}

func TestPayloadIsTyped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 3)
		_, err := server.Client().Schedules.Put(t.Context(), "w", "misfit", carillon.Params{
			Spec: carillon.Spec{At: []string{"2026-01-05T00:02:00"}}, Payload: "text", Delivery: carillon.Delivery{MaxAttempts: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		server.AdvanceBy(time.Hour)
		var sum atomic.Int64
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet})
		carillon.Handle(w, "w", func(_ context.Context, tick carillon.Tick[int64]) error {
			sum.Add(tick.Payload)
			return nil
		})
		stop := running(t, w)
		synctest.Wait()
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if sum.Load() != 0+1+2 {
			t.Errorf("got sum %d", sum.Load())
		}
		if r := record(t, server, "misfit"); r.State != "failed" || !strings.HasPrefix(r.Error, "payload: ") {
			t.Errorf("got %s with %q", r.State, r.Error)
		}
	})
}

func TestHeartbeatsKeepALongHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 3)
		var runs, single, bulk atomic.Int64
		client := over(t, server, func(r *http.Request) error {
			switch {
			case r.URL.Path == "/v1/ticks/heartbeat":
				bulk.Add(1)
			case strings.HasSuffix(r.URL.Path, "/heartbeat"):
				single.Add(1)
			}
			return nil
		})
		w := carillon.NewWorker(client, carillon.WorkerConfig{Log: quiet, Lease: 10 * time.Second, Concurrency: 3})
		carillon.Handle(w, "w", func(context.Context, none) error {
			runs.Add(1)
			time.Sleep(5 * time.Minute)
			return nil
		})
		stop := running(t, w)
		time.Sleep(6 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if r := record(t, server, fmt.Sprintf("k%d", i)); r.State != "succeeded" || r.Attempt != 1 {
				t.Errorf("got %s in attempt %d", r.State, r.Attempt)
			}
		}
		if runs.Load() != 3 || single.Load() != 0 || bulk.Load() < 30 || bulk.Load() > 200 {
			t.Errorf("got %d runs, %d single and %d bulk heartbeats", runs.Load(), single.Load(), bulk.Load())
		}
	})
}

func TestCancelledTickEndsItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 1)
		var cause error
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet, Lease: 10 * time.Second})
		carillon.Handle(w, "w", func(ctx context.Context, tick none) error {
			server.Cancel(tick.TickID)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		stop := running(t, w)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if r := record(t, server, "k0"); r.State != "cancelled" || !errors.Is(cause, carillon.ErrCancelled) {
			t.Errorf("got %s, cause %v", r.State, cause)
		}
	})
}

func TestLostLeaseEndsTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 1)
		var dark atomic.Bool
		dark.Store(true)
		client := over(t, server, func(r *http.Request) error {
			if dark.Load() && strings.HasSuffix(r.URL.Path, "/heartbeat") {
				return errCut
			}
			return nil
		})
		var causes []error
		w := carillon.NewWorker(client, carillon.WorkerConfig{Log: quiet, Lease: 10 * time.Second})
		carillon.Handle(w, "w", func(ctx context.Context, tick none) error {
			if tick.Attempt > 1 {
				return nil
			}
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took < 10*time.Second || took > 12*time.Second {
				t.Errorf("the context ended after %s, want the lease's 10s", took)
			}
			causes = append(causes, context.Cause(ctx))
			dark.Store(false)
			return nil // too late: the tick is not this attempt's any more
		})
		stop := running(t, w)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		r := record(t, server, "k0")
		if r.State != "succeeded" || len(r.Attempts) != 2 || r.Attempts[0].Error != "the lease ended" {
			t.Errorf("got %+v", r)
		}
		if len(causes) != 1 || !errors.Is(causes[0], carillon.ErrLeaseLost) {
			t.Errorf("got causes %v", causes)
		}
	})
}

func TestRunWaitsForItsHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 2)
		var ended atomic.Int64
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet})
		carillon.Handle(w, "w", func(ctx context.Context, _ none) error {
			time.Sleep(20 * time.Second)
			ended.Add(1)
			return ctx.Err()
		})
		stop := running(t, w)
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); ended.Load() != 2 || took < 19*time.Second || took > 20*time.Second {
			t.Errorf("%d handlers ended, Run after %s", ended.Load(), took)
		}
		if r := record(t, server, "k1"); r.State != "succeeded" {
			t.Errorf("got %s", r.State)
		}
	})
}

func TestShutdownTimeoutEndsTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 1)
		var cause error
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet, ShutdownTimeout: 5 * time.Second})
		carillon.Handle(w, "w", func(ctx context.Context, _ none) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return errors.New("interrupted")
		})
		stop := running(t, w)
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		r := record(t, server, "k0")
		if r.State != "running" || r.Error != "interrupted" || !errors.Is(cause, carillon.ErrShutdown) {
			t.Errorf("got %s with %q, cause %v; want another attempt", r.State, r.Error, cause)
		}
	})
}

func TestStuckHandlerIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 1)
		release := make(chan struct{})
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet, ShutdownTimeout: time.Second})
		carillon.Handle(w, "w", func(context.Context, none) error {
			<-release
			return nil
		})
		stop := running(t, w)
		time.Sleep(time.Second)
		if err := stop(); err == nil || !strings.Contains(err.Error(), "1 handlers did not end") {
			t.Errorf("got %v", err)
		}
		close(release)
	})
}

func TestWorkerThatMayNotLeaseEnds(t *testing.T) {
	t.Parallel()
	c, err := carillon.New(carillon.Config{
		URL: "http://carillon.test", Token: "another", HTTPClient: &http.Client{Transport: carillontest.New().Transport()},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := carillon.NewWorker(c, carillon.WorkerConfig{Log: quiet})
	carillon.Handle(w, "w", func(context.Context, none) error { return nil })
	if err := w.Run(t.Context()); !errors.Is(err, carillon.ErrUnauthorized) {
		t.Errorf("got %v", err)
	}
}

func TestWorkerOutlivesAServerThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 10)
		var away atomic.Bool
		var runs atomic.Int64
		client := over(t, server, func(*http.Request) error {
			if away.Load() {
				return errCut
			}
			return nil
		})
		w := carillon.NewWorker(client, carillon.WorkerConfig{Log: quiet})
		carillon.Handle(w, "w", func(context.Context, none) error {
			away.Store(true) // just when there is something to report
			runs.Add(1)
			return nil
		})
		stop := running(t, w)
		time.Sleep(40 * time.Second) // less than the lease
		away.Store(false)
		time.Sleep(15 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if r := record(t, server, fmt.Sprintf("k%d", i)); r.State != "succeeded" || r.Attempt != 1 {
				t.Errorf("got %s in attempt %d", r.State, r.Attempt)
			}
		}
		if runs.Load() != 10 {
			t.Errorf("got %d runs", runs.Load())
		}
	})
}

func TestRunSaysWhatItCouldNotReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 3)
		client := over(t, server, func(r *http.Request) error {
			return errIf(strings.HasSuffix(r.URL.Path, "/finish"))
		})
		w := carillon.NewWorker(client, carillon.WorkerConfig{Log: quiet})
		carillon.Handle(w, "w", func(context.Context, none) error { return nil })
		stop := running(t, w)
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err == nil || !strings.Contains(err.Error(), "3 ticks could not be reported") || time.Since(began) > 10*time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

func TestOneRefusedResultSpoilsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 20)
		refusing := roundTrip(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			if strings.Contains(string(body), "too much") && strings.Contains(string(body), `"complete"`) {
				return &http.Response{StatusCode: 413, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"detail":"too large"}`)), Request: r}, nil
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			return server.Transport().RoundTrip(r)
		})
		c, err := carillon.New(carillon.Config{URL: "http://carillon.test", Token: carillontest.Token, HTTPClient: &http.Client{Transport: refusing}})
		if err != nil {
			t.Fatal(err)
		}
		w := carillon.NewWorker(c, carillon.WorkerConfig{Log: quiet})
		carillon.HandleResult(w, "w", func(_ context.Context, tick carillon.Tick[int]) (any, error) {
			switch tick.Payload {
			case 7:
				return "too much", nil
			case 8:
				return func() {}, nil
			}
			return tick.Payload, nil
		})
		stop := running(t, w)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			r := record(t, server, fmt.Sprintf("k%d", i))
			switch {
			case i == 7 && r.State == "failed" && r.Error == "result refused: too large":
			case i == 8 && r.State == "failed" && strings.Contains(r.Error, "encode"):
			case i != 7 && i != 8 && r.State == "succeeded" && string(r.Result) == fmt.Sprint(i):
			default:
				t.Errorf("k%d: got %s with %q and %s", i, r.State, r.Error, r.Result)
			}
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestConcurrencyIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		due(t, server, 200)
		var mu sync.Mutex
		now, most, asked := 0, 0, 0
		client := over(t, server, func(r *http.Request) error {
			if strings.HasSuffix(r.URL.Path, "/lease") {
				asked++
			}
			return nil
		})
		w := carillon.NewWorker(client, carillon.WorkerConfig{Log: quiet, Concurrency: 7})
		carillon.Handle(w, "w", func(context.Context, none) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		})
		stop := running(t, w)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s, err := server.Client().Schedules.Get(context.Background(), "w", "k199")
		if err != nil || s.Stats.Succeeded != 1 || most != 7 {
			t.Errorf("got %+v, %v with %d at once, want 7", s.Stats, err, most)
		}
		if asked > 20 {
			t.Errorf("got %d leases for 200 ticks of quick handlers", asked)
		}
	})
}

// The server hands out the most urgent first; a worker with few slots keeps to that.
func TestTicksRunInTheOrderOfTheirLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		_, err := server.Client().Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: carillon.Every(time.Second), Policy: carillon.Policy{Overlap: "allow_all"}})
		if err != nil {
			t.Fatal(err)
		}
		server.AdvanceBy(500 * time.Second)
		var order []int64
		w := carillon.NewWorker(server.Client(), carillon.WorkerConfig{Log: quiet, Concurrency: 1})
		carillon.Handle(w, "w", func(_ context.Context, tick none) error {
			order = append(order, *tick.Occurrence)
			return nil
		})
		stop := running(t, w)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(order) != 500 || !slices.IsSorted(order) {
			t.Errorf("got %d ticks in the order %v", len(order), order)
		}
	})
}

func TestWorkerWithoutHandlersSaysSo(t *testing.T) {
	t.Parallel()
	if err := carillon.NewWorker(carillontest.New().Client(), carillon.WorkerConfig{}).Run(t.Context()); err == nil {
		t.Error("it ran")
	}
}

func TestSecondHandlerOfAWorkflowPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("it did not")
		}
	}()
	w := carillon.NewWorker(carillontest.New().Client(), carillon.WorkerConfig{})
	carillon.Handle(w, "w", func(context.Context, none) error { return nil })
	carillon.Handle(w, "w", func(context.Context, none) error { return nil })
}
