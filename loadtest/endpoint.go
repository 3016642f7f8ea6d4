package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// endpoint is a webhook on loopback that notes its deliveries in a ledger. It checks signatures with a third-party library.
type endpoint struct {
	server *http.Server
	done   chan struct{}
}

// openEndpoint serves an endpoint and registers it under a name.
func openEndpoint(ctx context.Context, c *carillon.Client, name string, l *ledger) (*endpoint, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	stored, err := c.Endpoints.Put(ctx, name, carillon.EndpointParams{URL: "http://" + listener.Addr().String() + "/ticks"})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	verifier, err := webhooks.NewWebhook(stored.Secret)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	e := &endpoint{done: make(chan struct{})}
	e.server = &http.Server{Handler: webhook(verifier, l), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(e.done)
		_ = e.server.Serve(listener) // it returns when it is closed
	}()
	return e, nil
}

func webhook(verifier *webhooks.Webhook, l *ledger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest) // its sender was killed
			return
		}
		var t carillon.Tick[json.RawMessage]
		err = errors.Join(verifier.Verify(body, r.Header), json.Unmarshal(body, &t))
		if err != nil || r.Header.Get(webhooks.HeaderWebhookID) != t.TickID {
			l.refuse()
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = l.take(r.Context(), t)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *endpoint) close() {
	_ = e.server.Close()
	<-e.done
}
