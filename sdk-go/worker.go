package carillon

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"time"
)

// WorkerConfig configures a [Worker]. The zero value is valid.
type WorkerConfig struct {
	Name        string   // the worker's name, for people to read; empty: the host's name and a random suffix
	Queues      []string // empty: every queue
	Concurrency int      // handlers at once, of all workflows; zero is 100. HandlerConfig limits one workflow

	// Lease is how long ticks belong to this worker without a heartbeat: 10 s to 10 min; zero is 1 min. The worker sends
	// heartbeats by itself, so Lease bounds how long the ticks of a dead worker wait for another one.
	Lease time.Duration

	// Wait is how long one request waits for ticks, at most 1 min; zero is 30 s.
	Wait time.Duration

	// ShutdownTimeout is how long Run lets handlers continue after its context has ended; zero is 30 s. Then their contexts
	// end too.
	ShutdownTimeout time.Duration

	// Hooks are called when the worker leases, runs and reports ticks, for metrics.
	Hooks Hooks

	// Log gets failed ticks and errors of the server, never a payload; nil is slog.Default().
	Log *slog.Logger
}

// Hooks are functions that a worker calls, each of them from several goroutines at once. A nil one is not called. They must return soon: the
// worker waits for them.
type Hooks struct {
	Leased   func(LeasedTicks)
	Started  func(context.Context, Tick[json.RawMessage])
	Ended    func(context.Context, EndedTick)
	Reported func(ReportedTicks)
}

// LeasedTicks is the answer to one request for ticks. Took includes the wait for the first tick.
type LeasedTicks struct {
	Workflows []string // of the request
	Ticks     int
	Took      time.Duration
	Err       error
}

// EndedTick is a tick whose handler has returned.
type EndedTick struct {
	Tick Tick[json.RawMessage]
	Took time.Duration // of the handler
	Err  error         // nil: it succeeded
}

// ReportedTicks is one request that reported outcomes.
type ReportedTicks struct {
	Ticks int
	Late  int // the server did not accept these outcomes, because the lease was lost or the tick cancelled
	Took  time.Duration
	Err   error
}

// Worker leases the ticks of the workflows that it has handlers for, runs the handlers and reports the outcomes.
type Worker struct {
	*handlers
	client *Client
	config WorkerConfig
}

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
	return &Worker{handlers: newHandlers(), client: c, config: config}
}

// Run works until ctx ends. Then it leases no more ticks, waits for the running handlers and reports their outcomes. It returns nil if all
// of them ended within ShutdownTimeout and are reported. Otherwise its error counts the other ticks, which will be delivered again.
//
// Run also returns when the server does not let it work. If the server refuses the very first request for ticks, and waiting cannot help, Run
// returns that error at once. If the server later refuses the credential for a minute, such as a revoked API key, Run returns an error that
// wraps the refusal. A server that is away never ends Run.
func (w *Worker) Run(ctx context.Context) error {
	workflows := w.workflows()
	if len(workflows) == 0 {
		return errors.New("carillon: the worker has no handler")
	}
	s := newShift(w)
	w.config.Log.InfoContext(ctx, "worker starts", "worker", w.config.Name, "workflows", workflows)
	err := s.lease(ctx)
	return errors.Join(err, s.end())
}
