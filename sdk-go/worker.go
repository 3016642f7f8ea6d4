package carillon

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"time"
)

// WorkerConfig configures a [Worker]. The zero value is valid.
type WorkerConfig struct {
	Name        string   // the worker's name, for people to read; empty: the host's name and a random suffix
	Queues      []string // empty: every queue
	Concurrency int      // handlers at once; zero is 100

	// Lease is how long ticks belong to this worker without a heartbeat: 10 s to 10 min; zero is 1 min. The worker sends
	// heartbeats by itself, so Lease bounds how long the ticks of a dead worker wait for another one.
	Lease time.Duration

	// Wait is how long one request waits for ticks, at most 1 min; zero is 30 s.
	Wait time.Duration

	// ShutdownTimeout is how long Run lets handlers go on once its context has ended; zero is 30 s. Then their contexts
	// end too.
	ShutdownTimeout time.Duration

	// Log gets failed ticks and errors of the server, never a payload; nil is slog.Default().
	Log *slog.Logger
}

// Worker leases the ticks of the workflows that it has handlers for, runs the handlers and reports the outcomes.
type Worker struct {
	client   *Client
	config   WorkerConfig
	handlers map[string]handler
}

type handler func(context.Context, Tick[json.RawMessage]) (result any, err error)

// NewWorker returns a worker without handlers. Give it some with [Handle], then call [Worker.Run].
func NewWorker(c *Client, config WorkerConfig) *Worker {
	if config.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		config.Name = host + "-" + rand.Text()[:8]
	}
	if config.Concurrency <= 0 {
		config.Concurrency = 100
	}
	if config.Lease <= 0 {
		config.Lease = time.Minute
	}
	if config.Wait <= 0 {
		config.Wait = 30 * time.Second
	}
	if config.ShutdownTimeout <= 0 {
		config.ShutdownTimeout = 30 * time.Second
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return &Worker{client: c, config: config, handlers: map[string]handler{}}
}

// Handle registers fn for the ticks of a workflow; call it before Run, once for each workflow.
//
// A nil error ends the tick as succeeded. Any other, a panic too, fails the attempt, which is tried again later unless
// the error is [Permanent]; [RetryAfter] says when. So does a payload that does not fit P. The context ends when the
// tick is cancelled, its lease is lost, or the worker has to stop: context.Cause tells which.
func Handle[P any](w *Worker, workflow string, fn func(context.Context, Tick[P]) error) {
	HandleResult(w, workflow, func(ctx context.Context, t Tick[P]) (any, error) { return nil, fn(ctx, t) })
}

// HandleResult is [Handle] for a function whose result is kept with the tick, as JSON. A json.RawMessage is kept as it is.
func HandleResult[P, R any](w *Worker, workflow string, fn func(context.Context, Tick[P]) (R, error)) {
	if _, ok := w.handlers[workflow]; ok {
		panic(fmt.Sprintf("carillon: workflow %q has a handler already", workflow))
	}
	w.handlers[workflow] = func(ctx context.Context, raw Tick[json.RawMessage]) (any, error) {
		t, err := typed[P](raw)
		if err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		return fn(ctx, t)
	}
}

// Run works until ctx ends, then leases no more, lets the running handlers end and reports them. It returns nil when all
// of them ended within ShutdownTimeout and are reported; else an error that counts the others, whose ticks will come
// again. It also returns when the very first lease is refused for a reason that waiting will not mend, such as a token
// without the scope ticks:work.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("carillon: the worker has no handler")
	}
	s := newShift(w)
	workflows := slices.Sorted(maps.Keys(w.handlers))
	w.config.Log.InfoContext(ctx, "worker starts", "worker", w.config.Name, "workflows", workflows)
	err := s.lease(ctx, workflows)
	return errors.Join(err, s.end())
}

// safely runs a handler. A panic, or a handler that ends its goroutine, is a failure.
func safely(ctx context.Context, h handler, t Tick[json.RawMessage], done func(result any, err error)) {
	var (
		result any
		err    = errors.New("the handler ended its goroutine")
	)
	defer func() {
		if p := recover(); p != nil {
			err = panicked{p, debug.Stack()}
		}
		done(result, err)
	}()
	result, err = h(ctx, t)
}

// panicked is a handler's panic. Its stack is for the log alone.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }
