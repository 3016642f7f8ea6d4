// Package loop runs a function periodically until a context ends, and logs its errors. It uses no table and no lock; a crash ends the
// loop, and the next process starts it again.
package loop

import (
	"context"
	"log/slog"
	"time"
)

// Every runs fn at once, and then once each period until ctx ends. It logs an error of fn as "cannot " followed by what, a verb phrase
// such as "send events".
func Every(ctx context.Context, log *slog.Logger, period time.Duration, what string, fn func(context.Context) error) {
	Paced(ctx, log, func() time.Duration { return period }, what, fn)
}

// Paced is Every with a period that may change: it calls pace after each run.
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
