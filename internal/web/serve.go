package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Grace is how long requests in flight may take once the server stops.
const Grace = 8 * time.Second

// maxHeaders is how many bytes the line and the headers of a request have at most.
const maxHeaders = 32 << 10

// Serve answers requests on ln, over HTTP/1.1 only, until ctx ends. Then it takes no new ones, lets those in flight end
// within Grace, and returns nil; who waits for something learns of it by Stopping. It closes ln.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	base := context.WithValue(context.WithoutCancel(ctx), stoppingKey, ctx.Done())
	s := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      30 * time.Second, // later than the read's, so that who is too slow is told so
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       watched,

		DisableGeneralOptionsHandler: true, // OPTIONS * is answered as any path that is not there
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
		log.Warn("requests were cut as they did not end in time", "error", stop)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
