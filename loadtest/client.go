package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// putAll stores the schedules, sixteen at a time, and returns the server's time of the last answer.
func putAll(ctx context.Context, c *carillon.Client, plan []*planned, step func()) (now time.Time, err error) {
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(16)
	stored := make([]time.Time, len(plan))
	for i, p := range plan {
		writers.Go(func() error {
			p.params.Payload = p.payload
			s, err := c.Schedules.Put(ctx, p.workflow, p.key, p.params)
			if err != nil {
				return fmt.Errorf("put %s: %w", p.key, err)
			}
			p.version, stored[i] = s.Version, s.UpdatedAt
			step()
			return nil
		})
	}
	err = writers.Wait()
	for _, at := range stored {
		if at.After(now) {
			now = at
		}
	}
	return now, err
}

// workers are an SDK worker that runs until it is stopped.
type workers struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// startWorkers starts workers that note all leased ticks of the workflows in the ledger. They go on while the server is away.
func startWorkers(ctx context.Context, c *carillon.Client, l *ledger, workflows ...string) *workers {
	worker := carillon.NewWorker(c, carillon.WorkerConfig{
		Name:            "loadtest",
		Lease:           10 * time.Second,
		Wait:            5 * time.Second,
		ShutdownTimeout: 5 * time.Second,
		Log:             slog.New(slog.DiscardHandler), // it would only log that the server is killed
	})
	for _, workflow := range workflows {
		carillon.Handle[json.RawMessage](worker, workflow, l.take)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &workers{cancel, make(chan struct{})}
	go func() {
		defer close(w.done)
		_ = worker.Run(ctx) // the histories show ticks that it did not end
	}()
	return w
}

func (w *workers) stop() {
	w.cancel()
	<-w.done
}

// errTooSlow is the error of a scenario that this machine is too slow to run.
var errTooSlow = errors.New("this machine is too slow or too busy for this scenario")
