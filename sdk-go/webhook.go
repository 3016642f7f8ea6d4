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
	Log         *slog.Logger  // logs refused requests and failed ticks, never a payload; nil is slog.Default()

	// OnEvent is called with each event. After an error the server sends the event again later. Nil accepts and drops events.
	OnEvent func(context.Context, Event) error
}

// WebhookHandler returns an HTTP handler that takes pushed ticks, one or a batch, checks their signature and calls fn for
// each.
//
// A nil error succeeds the tick (204). [ErrAccepted] leaves it running until [Client.Complete] or [Client.Fail] is called
// with its lease token (202). An error that is [RetryAfter] answers 503 and says when, any other 500; so does a panic. A
// payload that does not fit P is 422. Carillon tries again in all these cases. An unsigned request is 401 and never reaches fn.
//
// A test tick that is signed is answered with success (204) and never reaches fn: see [Client.TestEndpoint].
//
// Carillon waits min(15 s, the schedule's timeout) for the answer, and delivers at least once: a lost answer brings the
// same tick again, with the same TickID. A function that must not act twice remembers the ids that it has done, in the
// transaction that does it. The handler keeps no such memory.
func WebhookHandler[P any](config WebhookConfig, fn func(context.Context, Tick[P]) error) (http.Handler, error) {
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
	run := func(ctx context.Context, raw Tick[json.RawMessage]) (any, error) {
		t, err := typed[P](raw)
		if err != nil {
			return nil, misfit{err}
		}
		return nil, fn(ctx, t)
	}
	return &webhook{config, verifier, run}, nil
}

// misfit marks a payload that does not decode into the handler's type.
type misfit struct{ error }

func (e misfit) Error() string { return "payload: " + e.error.Error() }

type webhook struct {
	config   WebhookConfig
	verifier *Verifier
	run      handler
}

func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
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
	h.answer(w, h.tick(r.Context(), pushed.Tick))
}

// refuse answers 401 to a request that Carillon has not signed. The log says what is wrong with it; the sender learns nothing.
func (h *webhook) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.config.Log.WarnContext(r.Context(), "webhook refused", "error", err)
	http.Error(w, ErrSignature.Error(), http.StatusUnauthorized)
}

// testPrefix begins the id of a test tick, and of no other.
const testPrefix = "test_"

// tick runs one tick; it answers a test tick without a call of the function.
func (h *webhook) tick(ctx context.Context, t Tick[json.RawMessage]) (failure error) {
	if strings.HasPrefix(t.TickID, testPrefix) {
		return nil
	}
	safely(ctx, h.run, t, func(_ any, err error) {
		failure = err
		if err != nil && !errors.Is(err, ErrAccepted) {
			logFailure(ctx, h.config.Log, t, err)
		}
	})
	return failure
}

// answer writes the outcome of one tick.
func (h *webhook) answer(w http.ResponseWriter, err error) {
	_, after := retryOf(err)
	switch _, unfit := errors.AsType[misfit](err); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ErrAccepted):
		w.WriteHeader(http.StatusAccepted)
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
func (h *webhook) batch(w http.ResponseWriter, r *http.Request, ticks []Tick[json.RawMessage]) {
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
			results[i] = result{TickID: t.TickID, Status: "failed", Error: "the handler ended its goroutine"}
			switch err := h.tick(r.Context(), t); {
			case err == nil:
				results[i] = result{TickID: t.TickID, Status: "succeeded"}
			case errors.Is(err, ErrAccepted):
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
