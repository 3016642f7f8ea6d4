package carillontest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// Secret is the signing secret of [Server.Push].
const Secret = "whsec_Y2FyaWxsb250ZXN0IGhhcyBubyBzZWNyZXRz"

// target runs the ticks of a workflow in this process. It returns false if the tick goes on after the call.
type target func(t *tick, wire carillon.Tick[json.RawMessage]) (o outcome, ended bool)

// Push pushes the ticks of a workflow to a webhook's handler from now on, one by one and signed with [Secret]. Ticks that are ready go
// first, at the next move of the clock.
func (s *Server) Push(workflow string, webhook http.Handler) {
	s.direct(workflow, func(t *tick, wire carillon.Tick[json.RawMessage]) (outcome, bool) {
		w := httptest.NewRecorder()
		webhook.ServeHTTP(w, Request(context.Background(), Secret, wire.TickID, time.Now(), bytes.TrimSpace(encoded(wire))))
		switch {
		case w.Code == http.StatusAccepted:
			return outcome{}, false
		case w.Code <= 299:
			return outcome{result: succeeded}, true
		}
		o := outcome{result: failed, err: strings.TrimSpace(w.Body.String()), status: w.Code}
		if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err == nil {
			o.retryAfter = time.Duration(after) * time.Second
		}
		return o, true
	})
}

// Handle runs fn for the ticks of a workflow from now on, one after the other, as a worker would: a nil error ends the tick as succeeded,
// any other error fails the attempt, and so does a panic. [carillon.Permanent] and [carillon.RetryAfter] have their effect.
func (s *Server) Handle(workflow string, fn func(context.Context, carillon.Tick[json.RawMessage]) error) {
	s.direct(workflow, func(t *tick, wire carillon.Tick[json.RawMessage]) (outcome, bool) {
		err := safely(func() error { return fn(context.Background(), wire) })
		if err == nil {
			return outcome{result: succeeded}, true
		}
		return s.outcomeOf(wire, err), true
	})
}

func safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn()
}

// outcomeOf returns the outcome that a handler's error stands for. It calls the SDK's Fail, whose transport keeps the request and sends
// nothing.
func (s *Server) outcomeOf(wire carillon.Tick[json.RawMessage], failure error) (o outcome) {
	var sent finish
	client, err := carillon.New(carillon.Config{URL: "http://carillon.test", Token: Token, Retries: -1, HTTPClient: &http.Client{
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}),
	}})
	if err == nil {
		err = client.Ticks.Fail(context.Background(), wire.TickID, wire.LeaseToken, failure)
	}
	if err != nil {
		return outcome{result: failed, err: errors.Join(failure, err).Error()}
	}
	sent.Outcome = "fail"
	return sent.outcome()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// direct gives the ticks of a workflow to a target from now on.
func (s *Server) direct(workflow string, to target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets[workflow] = to
	s.outbox = append(s.outbox, s.ready[workflow]...)
	delete(s.ready, workflow)
}

// Takes sets how long each attempt at a tick of a workflow takes, by the server's clock, from now on. The outcome of a handler, of a webhook
// or of a worker counts when that time has passed since the attempt began. Zero, which is the default, ends ticks at once. This is how a test
// makes ticks overlap.
func (s *Server) Takes(workflow string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes[workflow] = d
}

// Work runs a worker until the test ends: a [carillon.Worker], or anything with its method Run. From now on, the clock waits until the
// worker's handlers have ended for each tick that was handed out. Work returns when the worker polls for ticks.
func (s *Server) Work(worker interface{ Run(context.Context) error }) {
	s.help()
	ended := make(chan error, 1)
	s.mu.Lock()
	before := len(s.polled)
	s.workers++
	s.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- worker.Run(ctx) }()
	s.cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.tb.Errorf("carillontest: the worker: %v", err)
		}
	})
	late := time.NewTimer(settleLimit)
	defer late.Stop()
	for {
		s.mu.Lock()
		polls, changed := len(s.polled) > before, s.changed
		s.mu.Unlock()
		if polls {
			s.waitForWorkers()
			return
		}
		select {
		case <-changed:
		case err := <-ended:
			ended <- nil // for the cleanup
			s.fail("the worker has ended before it polled: %v", err)
			return
		case <-late.C:
			s.fail("the worker has not polled for ticks within %s", settleLimit)
			return
		}
	}
}

// cleanup runs a function when the test ends. A server that New made has no test, so that it can run no worker.
func (s *Server) cleanup(fn func()) {
	if s.tb == nil {
		s.fail("only a server of Start can run a worker")
	}
	s.tb.Cleanup(fn)
}

// unsettled returns a tick that a worker of Work has, or can take now. The caller holds the lock.
func (s *Server) unsettled() *tick {
	if s.workers == 0 {
		return nil
	}
	for t := range s.leased {
		if t.byWork {
			return t
		}
	}
	for workflow, ready := range s.ready {
		for _, t := range ready {
			if s.polled[poll{workflow, ""}] || s.polled[poll{workflow, t.terms().delivery.Queue}] {
				if s.room(workflow) > 0 && !s.holds(t) {
					return t
				}
			}
		}
	}
	return nil
}

// deliver makes a running tick ready for a target, or for a lease. The caller holds the lock.
func (s *Server) deliver(t *tick) {
	workflow := t.of.workflow
	if fresh := t.timed && t.attempt == 1 && t.cause != "buffered"; !fresh && s.unwanted(t) {
		return
	}
	t.parked = s.holds(t)
	if s.targets[workflow] != nil {
		s.outbox = append(s.outbox, t)
		return
	}
	s.ready[workflow] = append(s.ready[workflow], t)
	s.announce()
}

// room returns how many more ticks of a workflow may run. The caller holds the lock.
func (s *Server) room(workflow string) int {
	w := s.workflows[workflow]
	if w == nil || w.MaxRunning == 0 {
		return 1 << 30
	}
	return w.MaxRunning - w.running
}

// holds reports whether a tick waits for the release of its workflow. A tick that was delivered before goes on. The caller holds the lock.
func (s *Server) holds(t *tick) bool {
	w := s.workflows[t.of.workflow]
	return w != nil && w.State == held && t.attempt == t.first+1
}

// nextOut takes the next tick that a target of this process can run now. The caller holds the lock.
func (s *Server) nextOut() *tick {
	for i, t := range s.outbox {
		if s.room(t.of.workflow) > 0 && !s.holds(t) {
			s.outbox = slices.Delete(s.outbox, i, i+1)
			return t
		}
	}
	return nil
}

// send runs a tick in this process.
func (s *Server) send(t *tick) {
	s.mu.Lock()
	to := s.targets[t.of.workflow]
	if s.unwanted(t) {
		s.mu.Unlock()
		return
	}
	s.begin(t, "", time.Now().Add(time.Hour))
	wire := t.wire()
	s.mu.Unlock()
	o, ended := to(t, wire)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended && s.leased[t] && t.token == wire.LeaseToken {
		s.conclude(t, o)
	}
}

// Request returns a webhook as Carillon sends it: a POST of content, signed for id and the time at (Standard Webhooks 1.0). It panics if secret
// is not a webhook's secret.
func Request(ctx context.Context, secret, id string, at time.Time, content []byte) *http.Request {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(fmt.Sprintf("carillontest: %q is not a webhook's secret", secret))
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, stamp, content)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(content))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", stamp)
	r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r
}
