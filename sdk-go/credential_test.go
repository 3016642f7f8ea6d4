package carillon_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// The client sends the API key that it is given, or that of the environment; a token replaces the environment's key.
func TestTheClientSendsItsCredential(t *testing.T) {
	sent := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	t.Setenv("CARILLON_URL", server.URL)
	t.Setenv("CARILLON_API_KEY", "carillon_key_env")
	source := func(context.Context) (carillon.AccessToken, error) { return carillon.AccessToken{Token: "fresh"}, nil }
	for want, config := range map[string]carillon.Config{
		"Bearer carillon_key_env": {},
		"Bearer carillon_key_own": {APIKey: "carillon_key_own"},
		"Bearer token":            {Token: "token"},
		"Bearer fresh":            {TokenSource: source},
	} {
		client, err := carillon.New(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Workflows.Get(t.Context(), "w"); err == nil {
			t.Error("want an error")
		}
		if got := <-sent; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		client.Close()
	}
	for _, config := range []carillon.Config{{APIKey: "a", Token: "b"}, {APIKey: "a", TokenSource: source}, {Token: "b", TokenSource: source}} {
		if _, err := carillon.New(config); err == nil {
			t.Errorf("%+v: want an error", config)
		}
	}
}
