package carillon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
)

// Handler runs one tick, whose payload is not decoded. Its result is stored with the tick as JSON.
type Handler func(context.Context, Tick[json.RawMessage]) (result any, err error)

// HandlerConfig has the limits of one handler.
type HandlerConfig struct {
	// Concurrency is how many ticks of the workflow a worker runs at once. Zero is no limit but that of the whole worker. A worker leases
	// the ticks of such a workflow by a request of its own, so that its full handlers never hold the ticks of another workflow back.
	Concurrency int
}

// Handlers is what [Handle] gives a function to: an [App], a [Worker] or a [Webhook].
type Handlers interface {
	handlerSet() *handlers
}

// Handle makes fn run the ticks of a workflow. Call it once for each workflow, before the worker runs or the webhook serves.
//
// A nil error ends the tick as succeeded; so does [Drop]. Any other error, or a panic, fails the attempt, and another attempt follows, unless
// the error is [Permanent]. [RetryAfter] sets the wait before it. A payload that does not fit P is such a failure too.
//
// The context ends when the attempt has to stop. [context.Cause] gives the reason: [ErrCancelled], [ErrLeaseLost], [ErrTimeout] or
// [ErrShutdown].
func Handle[P any](to Handlers, workflow string, fn func(context.Context, Tick[P]) error, config ...HandlerConfig) {
	HandleResult(to, workflow, func(ctx context.Context, t Tick[P]) (any, error) { return nil, fn(ctx, t) }, config...)
}

// HandleResult is [Handle] for a function whose result is stored with the tick, as JSON. A json.RawMessage is stored unchanged. The server
// stores no result of a tick that a webhook answers at once.
func HandleResult[P, R any](to Handlers, workflow string, fn func(context.Context, Tick[P]) (R, error), config ...HandlerConfig) {
	to.handlerSet().add(workflow, func(ctx context.Context, raw Tick[json.RawMessage]) (any, error) {
		t, err := typed[P](raw)
		if err != nil {
			return nil, misfit{err}
		}
		return fn(ctx, t)
	}, config)
}

// misfit marks a payload that does not decode into the handler's type.
type misfit struct{ error }

func (e misfit) Error() string { return "payload: " + e.error.Error() }

func (e misfit) Unwrap() error { return e.error }

// handlers are the functions of a program by their workflows.
type handlers struct {
	of         map[string]handled
	middleware []func(next Handler) Handler
}

type handled struct {
	run    Handler
	config HandlerConfig
}

func newHandlers() *handlers { return &handlers{of: map[string]handled{}} }

func (h *handlers) handlerSet() *handlers { return h }

// Use wraps all handlers, including those that [Handle] adds later. The first middleware is the outermost. Middleware sees a panic of the
// function as an error.
func (h *handlers) Use(middleware ...func(next Handler) Handler) {
	h.middleware = append(h.middleware, middleware...)
}

func (h *handlers) add(workflow string, run Handler, config []HandlerConfig) {
	if _, ok := h.of[workflow]; ok {
		panic(fmt.Sprintf("carillon: workflow %q has a handler already", workflow))
	}
	if len(config) == 0 {
		config = []HandlerConfig{{}}
	}
	h.of[workflow] = handled{run, config[0]}
}

// workflows returns the names of the workflows in alphabetical order.
func (h *handlers) workflows() []string { return slices.Sorted(maps.Keys(h.of)) }

// chain returns the handlers within their middleware.
func (h *handlers) chain() map[string]Handler {
	all := make(map[string]Handler, len(h.of))
	for workflow, handled := range h.of {
		run := recovered(handled.run)
		for _, around := range slices.Backward(h.middleware) {
			run = around(run)
		}
		all[workflow] = run
	}
	return all
}

// errEnded is the failure of a handler that calls runtime.Goexit.
var errEnded = errors.New("the handler ended its goroutine")

// recovered returns a handler whose panics are errors.
func recovered(h Handler) Handler {
	return func(ctx context.Context, t Tick[json.RawMessage]) (result any, err error) {
		defer func() {
			if p := recover(); p != nil {
				result, err = nil, panicked{p, debug.Stack()}
			}
		}()
		return h(ctx, t)
	}
}

// safely runs a handler and calls done exactly once. A panic, or a handler that ends its goroutine, is a failure.
func safely(ctx context.Context, h Handler, t Tick[json.RawMessage], done func(result any, err error)) {
	var (
		result any
		err    = errEnded
	)
	defer func() { done(result, err) }()
	result, err = recovered(h)(ctx, t)
}

// panicked is a handler's panic. Its stack is for the log only.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// Unwrap returns the error with which the handler panicked, if it is one.
func (p panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
