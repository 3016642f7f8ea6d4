// Package loop runs work again and again.
package loop

import (
	"context"
	"log/slog"
	"time"
)

// Every runs fn now and then once each period until ctx ends. It logs an error of fn as "cannot " and what fn does.
func Every(ctx context.Context, log *slog.Logger, period time.Duration, what string, fn func(context.Context) error) {
	Paced(ctx, log, func() time.Duration { return period }, what, fn)
}

// Paced is Every for a period that may change from one run to the next.
func Paced(ctx context.Context, log *slog.Logger, pace func() time.Duration, what string, fn func(context.Context) error) {
	period := pace()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if err := fn(ctx); err != nil && ctx.Err() == nil {
			log.Error("cannot "+what, "error", err)
		}
		if now := pace(); now != period {
			period = now
			tick.Reset(period)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
