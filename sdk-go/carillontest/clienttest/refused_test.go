package clienttest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// newEcho serves an API that answers 204, and reports the traceparent of each request. It returns its address.
func newEcho(t *testing.T, each func(traceparent string)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		each(r.Header.Get("traceparent"))
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// refusing answers a worker's requests with a status, if it is set.
func refusing(t *testing.T, server *carillontest.Server, status *atomic.Int64) *carillon.Client {
	t.Helper()
	c, err := carillon.New(carillon.Config{
		URL: "http://carillon.test", Token: carillontest.Token,
		HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if status := int(status.Load()); status != 0 {
				body := io.NopCloser(strings.NewReader(`{"code":"refused","detail":"the API key is revoked"}`))
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, Request: r}, nil
			}
			return server.Transport().RoundTrip(r)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A worker whose credential is refused for a minute ends with an error, and not before.
func TestRefusedCredentialEndsTheWorkerAfterAMinute(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{401: carillon.ErrUnauthorized, 403: carillon.ErrForbidden} {
		synctest.Test(t, func(t *testing.T) {
			var refused atomic.Int64
			w := carillon.NewWorker(refusing(t, carillontest.New(), &refused), carillon.WorkerConfig{Log: quiet, Wait: time.Second})
			carillon.Handle(w, "w", func(context.Context, none) error { return nil })
			ended := make(chan error, 1)
			go func() { ended <- w.Run(t.Context()) }()
			time.Sleep(10 * time.Second)
			refused.Store(int64(status))
			began := time.Now()
			err := <-ended
			if took := time.Since(began); !errors.Is(err, want) || !strings.Contains(err.Error(), "the API key is revoked") || took < time.Minute || took > 70*time.Second {
				t.Errorf("%d: got %v after %s", status, err, took)
			}
		})
	}
}

// A refusal that passes, such as that of a key that is rotated, does not end a worker; nor does any other trouble.
func TestWorkerOutlivesARefusalThatPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := carillontest.New()
		var refused atomic.Int64
		w := carillon.NewWorker(refusing(t, server, &refused), carillon.WorkerConfig{Log: quiet, Wait: time.Second})
		runs := atomic.Int64{}
		carillon.Handle(w, "w", func(context.Context, none) error {
			runs.Add(1)
			return nil
		})
		stop := running(t, w)
		for _, status := range []int64{0, 401, 0, 401, 503, 401, 500, 404, 0} {
			refused.Store(status)
			time.Sleep(50 * time.Second)
		}
		due(t, server, 1)
		time.Sleep(20 * time.Second)
		if err := stop(); err != nil || runs.Load() != 1 {
			t.Errorf("got %v and %d runs", err, runs.Load())
		}
	})
}
