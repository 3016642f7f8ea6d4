package carillon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// WebhookConfig holds the secrets and limits of a webhook. Only Secrets is required.
type WebhookConfig struct {
	Secrets     []string      // "whsec_…" of the endpoint; two while one replaces the other
	Tolerance   time.Duration // how far a timestamp may be off; zero is 5 minutes
	MaxBody     int64         // bytes; zero is 32 MiB, a batch of 500 ticks with the largest payloads
	Concurrency int           // ticks of one batch at once; zero is 16
	Propagator  Propagator    // continues the trace of a tick in the context of its handler; nil does nothing
	Log         *slog.Logger  // logs refused requests and failed ticks, never a payload; nil is slog.Default()

	// OnEvent is called with each event. After an error the server sends the event again later. Nil accepts and drops events.
	OnEvent func(context.Context, Event) error
}

// Webhook is an HTTP handler that takes pushed ticks, one or a batch, and events. It checks their signature and calls the functions that
// [Handle] gave it. An unsigned request is 401 and reaches no function.
//
// A nil error succeeds the tick (204); so does [Drop]. [Later] leaves it running (202) until [Ticks.Complete] or [Ticks.Fail] is called with
// its lease token. An error that is [RetryAfter] answers 503 with the wait, any other 500; so does a panic. A payload that does not fit is 422,
// and a workflow without a function 404. Carillon tries again in all these cases.
//
// A test tick that is signed is answered with success (204) and reaches no function: see [Endpoints.Test].
//
// Carillon waits min(15 s, the schedule's timeout) for the answer, and delivers at least once: after a lost answer the same tick comes again,
// with the same TickID. A function that must not act twice stores the ids of its finished ticks, in the transaction that acts. The
// webhook remembers nothing.
type Webhook struct {
	*handlers
	config   WebhookConfig
	verifier *Verifier
	chained  func() map[string]Handler
}

// NewWebhook returns a webhook without functions. Give it some with [Handle], then serve it.
func NewWebhook(config WebhookConfig) (*Webhook, error) {
	verifier, err := NewVerifier(config.Secrets, config.Tolerance)
	if err != nil {
		return nil, err
	}
	if config.MaxBody <= 0 {
		config.MaxBody = 32 << 20
	}
	if config.Concurrency <= 0 {
		config.Concurrency = 16
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	h := &Webhook{handlers: newHandlers(), config: config, verifier: verifier}
	h.chained = sync.OnceValue(h.chain)
	return h, nil
}

// ServeHTTP answers one request of Carillon.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a webhook is a POST", http.StatusMethodNotAllowed)
		return
	}
	c, err := h.verifier.claim(r.Header, time.Now())
	if err != nil { // the body is not read
		h.refuse(w, r, err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBody))
	if _, ok := asType[*http.MaxBytesError](err); ok {
		http.Error(w, fmt.Sprintf("the body is longer than %d bytes", h.config.MaxBody), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "the body was cut", http.StatusBadRequest)
		return
	}
	if err := h.verifier.prove(c, body); err != nil {
		h.refuse(w, r, err)
		return
	}
	if e, ok := eventOf(body); ok {
		h.answer(w, h.event(r.Context(), e))
		return
	}
	var pushed struct {
		Ticks []Tick[json.RawMessage] `json:"ticks"`
		Tick[json.RawMessage]
	}
	if err := json.Unmarshal(body, &pushed); err != nil || pushed.Ticks == nil && pushed.TickID == "" {
		http.Error(w, "the body is neither a tick nor a batch of ticks", http.StatusBadRequest)
		return
	}
	if pushed.Ticks != nil {
		h.batch(w, r, pushed.Ticks)
		return
	}
	if pushed.Traceparent == "" {
		pushed.Traceparent = r.Header.Get("traceparent")
	}
	h.answer(w, h.tick(r.Context(), pushed.Tick))
}

// refuse answers 401 to a request that Carillon has not signed. The log says what is wrong with it; the sender learns nothing.
func (h *Webhook) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.config.Log.WarnContext(r.Context(), "webhook refused", "error", err)
	http.Error(w, ErrSignature.Error(), http.StatusUnauthorized)
}

// testPrefix begins the id of a test tick, and of no other.
const testPrefix = "test_"

// noHandler is the failure of a tick whose workflow has no function here.
type noHandler string

func (n noHandler) Error() string { return fmt.Sprintf("no function for the workflow %q", string(n)) }

// tick runs one tick; it answers a test tick without a call of a function.
func (h *Webhook) tick(ctx context.Context, t Tick[json.RawMessage]) (failure error) {
	if strings.HasPrefix(t.TickID, testPrefix) {
		return nil
	}
	run := h.chained()[t.Workflow]
	if run == nil {
		run = func(context.Context, Tick[json.RawMessage]) (any, error) { return nil, noHandler(t.Workflow) }
	}
	safely(traced(ctx, h.config.Propagator, t.Traceparent), run, t, func(_ any, err error) {
		_, failure = settle(nil, err)
		if failure != nil && !errors.Is(failure, Later) {
			logFailure(ctx, h.config.Log, t, failure)
		}
	})
	return failure
}

// answer writes the outcome of one tick.
func (h *Webhook) answer(w http.ResponseWriter, err error) {
	_, after := retryOf(err)
	_, unfit := asType[misfit](err)
	_, absent := asType[noHandler](err)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, Later):
		w.WriteHeader(http.StatusAccepted)
	case absent:
		http.Error(w, errorText(err), http.StatusNotFound)
	case unfit:
		http.Error(w, errorText(err), http.StatusUnprocessableEntity)
	case after > 0:
		w.Header().Set("Retry-After", fmt.Sprint(int64((after+time.Second-1)/time.Second)))
		http.Error(w, errorText(err), http.StatusServiceUnavailable)
	default:
		http.Error(w, errorText(err), http.StatusInternalServerError)
	}
}

// batch runs several ticks and writes the outcome of each.
func (h *Webhook) batch(w http.ResponseWriter, r *http.Request, ticks []Tick[json.RawMessage]) {
	type result struct {
		TickID string `json:"tick_id"`
		Status string `json:"status"`
		Error  string `json:"error,omitempty"`
	}
	results := make([]result, len(ticks))
	slots := make(chan struct{}, h.config.Concurrency)
	var running sync.WaitGroup
	for i, t := range ticks {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			results[i] = result{TickID: t.TickID, Status: "failed", Error: errEnded.Error()}
			switch err := h.tick(r.Context(), t); {
			case err == nil:
				results[i] = result{TickID: t.TickID, Status: "succeeded"}
			case errors.Is(err, Later):
				results[i] = result{TickID: t.TickID, Status: "running"}
			default:
				results[i].Error = errorText(err)
			}
		})
	}
	running.Wait()
	body, err := encode(map[string]any{"results": results})
	if err != nil {
		http.Error(w, "the results cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}
