package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
)

func client(t *testing.T, handler http.HandlerFunc) *api.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &api.Client{URL: server.URL, HTTP: server.Client(), Patience: time.Minute}
}

// A refusal with 503 is repeated with the same idempotency key.
func TestARefusedPOSTIsRepeatedWithItsKey(t *testing.T) {
	t.Parallel()
	var keys []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	if _, err := c.Do(t.Context(), api.Request{Method: "POST", Path: "/x"}); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("got the keys %q", keys)
	}
}

// A POST whose outcome is unknown is not repeated: the server might not know its key.
func TestAnUnknownOutcomeIsReported(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte(`{"code": "outcome_unknown", "detail": "look first"}`))
	})
	_, err := c.Do(t.Context(), api.Request{Method: "POST", Path: "/x"})
	if !api.HasCode(err, "outcome_unknown") || calls.Load() != 1 {
		t.Errorf("got %v after %d calls", err, calls.Load())
	}
}

func TestAServerThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refuse := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
		c := &api.Client{URL: "http://127.0.0.1:9", HTTP: &http.Client{Transport: transport(refuse)}, Patience: 300 * time.Millisecond}
		_, err := c.Do(t.Context(), api.Request{Path: "/x"})
		away, ok := errors.AsType[*api.Away](err)
		if !ok || away.Took != c.Patience || err.Error() != "no answer from http://127.0.0.1:9 within 300ms: connection refused" {
			t.Errorf("got %v", err)
		}
	})
}

// The time runs out during the second attempt. The error also says why the first one failed, because "deadline exceeded" names no cause.
func TestTheErrorOfAnAttemptThatWasCutNamesTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		refuse := func(r *http.Request) (*http.Response, error) {
			if calls++; calls == 1 {
				return nil, errors.New("connection refused")
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		c := &api.Client{URL: "http://127.0.0.1:9", HTTP: &http.Client{Transport: transport(refuse)}, Patience: 10 * time.Second}
		_, err := c.Do(t.Context(), api.Request{Path: "/x"})
		if want := "context deadline exceeded; before that: connection refused"; calls != 2 || err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v after %d calls, want an error that ends in %q", err, calls, want)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPathsKeepEveryCharacter(t *testing.T) {
	t.Parallel()
	var got string
	c := client(t, func(_ http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath() })
	for key, want := range map[string]string{"a/b": "/k/a%2Fb", "..": "/k/%2E%2E", "ü ?#%": "/k/%C3%BC%20%3F%23%25"} {
		if _, err := c.Do(t.Context(), api.Request{Path: api.Path("k", key)}); err != nil || got != want {
			t.Errorf("%q: got %q (%v), want %q", key, got, err, want)
		}
	}
}

// Pages are asked for one after another, and no more of them than are needed.
func TestItemsStopAtTheLimit(t *testing.T) {
	t.Parallel()
	var limits []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		limits = append(limits, r.URL.Query().Get("limit"))
		w.Write([]byte(`{"items": [1, 2], "next_cursor": "more"}`))
	})
	var items []string
	for item, err := range c.Items(t.Context(), "/x", nil, 3) {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, string(item))
	}
	if strings.Join(items, "") != "121" || strings.Join(limits, " ") != "3 1" {
		t.Errorf("got %q by pages of %q", items, limits)
	}
}
