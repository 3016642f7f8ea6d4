package carillon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
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

func ExampleClient_Bulk() {
	server := carillontest.New()
	defer server.Close()
	client := server.Client()

	sum, err := client.Bulk(context.Background(), digests("ada", "bob", "ada"), carillon.BulkParams{
		Each: func(r carillon.BulkResult) { fmt.Println(r.Line, r.Key, r.Result) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", sum)
	// Output:
	// 1 ada inserted
	// 2 bob inserted
	// 3 ada unchanged
	// {Inserted:2 Updated:0 Unchanged:1 Duplicates:0 Errors:0}
}

func TestBulkTellsWhatIsBad(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	lines := []carillon.BulkLine{
		{Workflow: "w", Key: "a", Params: carillon.Params{Spec: daily, Payload: json.RawMessage("{\n\"n\": 1}")}},
		{Workflow: "w", Key: "b", Params: carillon.Params{Spec: carillon.Spec{Cron: []string{"nonsense"}}}},
		{Workflow: "w", Params: carillon.Params{Spec: daily}},
	}
	var told []string
	sum, err := c.Bulk(t.Context(), slices.Values(lines), carillon.BulkParams{ErrorsOnly: true, Each: func(r carillon.BulkResult) {
		told = append(told, fmt.Sprint(r.Line, r.Key, r.Error.Status))
	}})
	if err != nil || sum.Inserted != 2 || sum.Errors != 1 || !slices.Equal(told, []string{"2b422"}) {
		t.Errorf("got %+v, %v, told %q", sum, err, told)
	}
	if s, err := c.Get(t.Context(), "w", "global"); err != nil || s.Version != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
	lines[2].IfAbsent = true
	if _, err := c.Bulk(t.Context(), slices.Values(lines), carillon.BulkParams{}); err == nil || !strings.Contains(err.Error(), "condition") {
		t.Errorf("got %v", err)
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
		if _, err := c.Bulk(t.Context(), digests("a"), carillon.BulkParams{}); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", answer, err, want)
		}
		c.Close()
		server.Close()
	}
}

func TestBulkEndsWithItsContextWhileLinesAreBlocked(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
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
		cancel()
	}()
	_, err = c.Bulk(ctx, func(func(carillon.BulkLine) bool) {
		close(blocked)
		<-release
	}, carillon.BulkParams{})
	if err == nil {
		t.Error("got no error")
	}
}
