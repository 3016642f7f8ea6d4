package carillontest_test

import (
	"net/http"
	"strings"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// Every route evaluates a precondition or refuses it, as the API's routes do.
func TestNoPreconditionIsIgnored(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	put := func() {
		if _, err := server.Client().Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: carillon.Spec{Cron: []string{"0 8 * * *"}}}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	ask := func(method, path, header, value string) int {
		t.Helper()
		body := ""
		if method != http.MethodGet {
			body = "{}"
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://carillon.test/v1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+carillontest.Token)
		r.Header.Set(header, value)
		answer, err := server.Transport().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	const one = "workflows/w/schedules/k"
	for _, c := range []struct{ method, path string }{
		{"PUT", one}, {"PATCH", one}, {"DELETE", one}, {"POST", one + "/pause"}, {"POST", one + "/resume"}, {"POST", one + "/trigger"}, {"GET", one},
	} {
		if got := ask(c.method, c.path, "If-Match", `"7"`); got != 412 {
			t.Errorf("%s %s of another version: got %d, want 412", c.method, c.path, got)
		}
		if c.method != http.MethodGet {
			if got := ask(c.method, c.path, "If-None-Match", "*"); got != 412 {
				t.Errorf("%s %s if there is none: got %d, want 412", c.method, c.path, got)
			}
		}
	}
	for _, c := range []struct{ method, path string }{
		{"GET", one + "/upcoming"}, {"GET", one + "/ticks"}, {"GET", "schedules"}, {"POST", "schedules/bulk"}, {"POST", "schedules/preview"},
		{"POST", "schedules/get"}, {"POST", "ticks/lease"}, {"GET", "ticks/tick_1"}, {"POST", "ticks/tick_1/heartbeat"},
	} {
		for _, header := range []string{"If-Match", "If-None-Match"} {
			if got := ask(c.method, c.path, header, `"1"`); got != 400 {
				t.Errorf("%s %s with %s: got %d, want 400", c.method, c.path, header, got)
			}
		}
	}
	if got := ask("GET", one, "If-None-Match", `W/"1"`); got != 304 {
		t.Errorf("a version that is known: got %d, want 304", got)
	}
	for _, tags := range []string{"*", `"3", "1"`} {
		put() // what was deleted
		if got := ask("DELETE", one, "If-Match", tags); got != 204 {
			t.Errorf("If-Match: %s: got %d, want 204", tags, got)
		}
	}
	if got := ask("PUT", one, "If-Match", "*"); got != 412 {
		t.Errorf("PUT of what is not there, If-Match: *: got %d, want 412", got)
	}
}
