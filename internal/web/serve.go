package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Grace is how long requests in flight may take after the server begins to stop.
const Grace = 8 * time.Second

// maxHeaders is the maximum size of a request line with its headers, in bytes.
const maxHeaders = 32 << 10

// Serve answers requests on ln, over HTTP/1.1 only, until ctx ends. Then it closes ln, closes the channel of Stopping, waits up to
// Grace for the requests in flight, and returns nil.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	base := context.WithValue(context.WithoutCancel(ctx), stoppingKey, ctx.Done())
	s := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      30 * time.Second, // longer than ReadTimeout, so that a slow client still gets its 408
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       storeConn,

		DisableGeneralOptionsHandler: true, // OPTIONS * gets the same answer as an unknown path
	}
	stopped := make(chan error, 1)
	served := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-served:
		}
		late, cancel := context.WithTimeout(base, Grace)
		defer cancel()
		if err := s.Shutdown(late); err != nil {
			stopped <- errors.Join(err, s.Close())
			return
		}
		stopped <- nil
	}()
	err := s.Serve(wires{ln})
	close(served)
	if stop := <-stopped; stop != nil {
		log.Warn("requests did not end in time and were aborted", "error", stop)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
