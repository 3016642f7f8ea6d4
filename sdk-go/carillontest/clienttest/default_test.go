package clienttest

import (
	"bytes"
	"errors"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

func TestDefaultClientReachesAServer(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	defer server.Close()
	c, err := carillon.New(carillon.Config{URL: server.Listen(), Token: carillontest.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Schedules.Put(t.Context(), "w", "a/b", carillon.Params{Spec: carillon.Spec{Cron: []string{"0 8 * * *"}}}); err != nil {
		t.Fatal(err)
	}
	s, err := c.Schedules.Get(t.Context(), "w", "a/b")
	if err != nil || s.Key != "a/b" || !bytes.Equal(s.Payload, []byte("null")) {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := c.Schedules.Get(t.Context(), "w", "a%2Fb"); !errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("got %v for another key", err)
	}
}
