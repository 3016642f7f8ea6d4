package carillon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

func TestNoErrorStaysNone(t *testing.T) {
	t.Parallel()
	if carillon.Permanent(nil) != nil || carillon.RetryAfter(nil, time.Hour) != nil {
		t.Error("a nil error became one")
	}
	if err := carillon.Permanent(carillon.RetryAfter(errCut, time.Hour)); !errors.Is(err, errCut) || err.Error() != errCut.Error() {
		t.Errorf("got %v, want the error as it was", err)
	}
}

func TestFailSaysWhatTheErrorIs(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("é", 3000))
	for want, err := range map[string]error{
		`{"lease_token":"l","error":"connection reset by peer","retry":true}`:                     errCut,
		`{"lease_token":"l","error":"connection reset by peer","retry":false}`:                    carillon.Permanent(carillon.RetryAfter(errCut, time.Hour)),
		`{"lease_token":"l","error":"connection reset by peer","retry":true,"retry_after":"90s"}`: carillon.RetryAfter(errCut, 89500*time.Millisecond),
		`{"lease_token":"l","error":"failed without an error","retry":true}`:                      nil,
		`{"lease_token":"l","error":"` + strings.Repeat("é", 1024) + `…","retry":true}`:           long,
	} {
		s := &script{}
		if err := s.client(t).Fail(t.Context(), "t1", "l", err); err != nil {
			t.Fatal(err)
		}
		if got := s.seen[0].body; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestRetryAfterMayBeADate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(9 * time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
		s := &script{answers: []answer{refused(503, at)}}
		began := time.Now()
		if _, err := s.client(t).Get(t.Context(), "w", "k"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("waited %s, want some 9s", took)
		}
	})
}

// A tick that was leased ahead and waits for a slot is kept by heartbeats, and is not run once it is cancelled.
func TestCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		ctx := t.Context()
		put := func(key, at string, payload bool) {
			t.Helper()
			_, err := server.Client().Put(ctx, "w", key, carillon.Params{Spec: carillon.Spec{At: []string{at}}, Payload: payload})
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
		server.Advance(time.Second)
		time.Sleep(10 * time.Second)
		server.Advance(time.Minute)
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
