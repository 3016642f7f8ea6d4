package carillon_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestDeletesSendTheVersionThatMustBeStored(t *testing.T) {
	t.Parallel()
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Method+" "+r.URL.Path+" "+r.Header.Get("If-Match"))
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/subjects/k" {
			_, _ = w.Write([]byte("{}"))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	c, err := carillon.New(carillon.Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at := carillon.RemoveParams{IfMatch: time.UnixMicro(1_700_000_000_000_001)}
	_, erase := c.Subjects.Erase(t.Context(), "k", carillon.DeleteParams{IfMatch: 3})
	_, eraseAny := c.Subjects.Erase(t.Context(), "k")
	for _, err := range []error{erase, eraseAny, c.Endpoints.Delete(t.Context(), "e", at), c.Workflows.Delete(t.Context(), "w", at), c.Workflows.Delete(t.Context(), "w")} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		`DELETE /v1/subjects/k "3"`, `DELETE /v1/subjects/k `, `DELETE /v1/endpoints/e "1700000000000001"`,
		`DELETE /v1/workflows/w "1700000000000001"`, `DELETE /v1/workflows/w `,
	}
	if !slices.Equal(sent, want) {
		t.Errorf("got %q, want %q", sent, want)
	}
}
