// Package webtest serves handlers in tests.
package webtest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/carillonhq/carillon/internal/web"
)

// Serve serves a handler as the program does, on a free port of loopback, until the test ends. It returns the address.
func Serve(t testing.TB, h http.Handler) string {
	t.Helper()
	return ServeBy(t, h, func(l net.Listener) net.Listener { return l })
}

// ServeBy is Serve with a listener that the test can change.
func ServeBy(t testing.TB, h http.Handler, change func(net.Listener) net.Listener) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, change(l), h, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}
