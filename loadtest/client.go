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

// putAll stores the schedules, sixteen at a time, and returns the server's clock at the last of them.
func putAll(ctx context.Context, c *carillon.Client, plan []*planned, step func()) (now time.Time, err error) {
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(16)
	stored := make([]time.Time, len(plan))
	for i, p := range plan {
		writers.Go(func() error {
			p.params.Payload = p.payload
			s, err := c.Put(ctx, p.workflow, p.key, p.params)
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

// startWorkers enters in the ledger whatever ticks of the workflows are leased. They outlive the server's absence.
func startWorkers(ctx context.Context, c *carillon.Client, l *ledger, workflows ...string) *workers {
	worker := carillon.NewWorker(c, carillon.WorkerConfig{
		Name:            "loadtest",
		Lease:           10 * time.Second,
		Wait:            5 * time.Second,
		ShutdownTimeout: 5 * time.Second,
		Log:             slog.New(slog.DiscardHandler), // a server that is killed is what it would tell of
	})
	for _, workflow := range workflows {
		carillon.Handle[json.RawMessage](worker, workflow, l.take)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &workers{cancel, make(chan struct{})}
	go func() {
		defer close(w.done)
		_ = worker.Run(ctx) // what it leaves undone, the histories show
	}()
	return w
}

func (w *workers) stop() {
	w.cancel()
	<-w.done
}

// errTooSlow is a scenario that cannot say what it was to show on this machine as it is.
var errTooSlow = errors.New("this machine is too slow or too busy for it now")
