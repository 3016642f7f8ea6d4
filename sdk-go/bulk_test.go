package carillon_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func digests(users ...string) iter.Seq[carillon.BulkLine] {
	return func(yield func(carillon.BulkLine) bool) {
		for _, user := range users {
			if !yield(carillon.BulkLine{Workflow: "daily-digest", Key: user, Params: carillon.Params{Spec: daily}}) {
				return
			}
		}
	}
}

func TestBulkThatIsCutSaysSo(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{
		"200 {\"line\":1,\"result\":\"inserted\",\"workflow\":\"w\",\"key\":\"a\"}\n": carillon.ErrCut,
		"200 {\"line\":1,": carillon.ErrCut,
		`200 {"error":{"status":401,"code":"invalid_token","detail":"the token has expired"}}`: carillon.ErrUnauthorized,
		"403 {}": carillon.ErrForbidden,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // what is cut is the answer
			if answer[:3] == "403" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(w, answer[4:])
		}))
		c, err := carillon.New(carillon.Config{URL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Schedules.PutAll(t.Context(), digests("a"), carillon.BulkParams{}); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", answer, err, want)
		}
		c.Close()
		server.Close()
	}
}

func TestBulkEndsWithItsContextWhileLinesAreBlocked(t *testing.T) {
	t.Parallel()
	const unanswered = "not answered"
	for name, answer := range map[string]http.HandlerFunc{
		"refused":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		unanswered: func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(asked)
				answer(w, r)
			}))
			defer server.Close()
			c, err := carillon.New(carillon.Config{URL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			blocked, release := make(chan struct{}), make(chan struct{})
			defer close(release)
			go func() {
				<-blocked
				<-asked
				cancel()
			}()
			_, err = c.Schedules.PutAll(ctx, func(func(carillon.BulkLine) bool) {
				close(blocked)
				<-release
			}, carillon.BulkParams{})
			if err == nil || name == unanswered && !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
}
