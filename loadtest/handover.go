package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	handed      = "handed"
	handedLease = 10 * time.Second
	workCommand = "work"
)

// handover fires a herd, whose ticks must be completed as fast as those of pull. A process of SDK workers runs them and is killed when half
// of them have ended. Then other workers complete the rest.
func handover(ctx context.Context, o options, p *progress) (*report, error) {
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		if err := d.put(ctx, handed); err != nil {
			return err
		}
		first, err := startWork(d.at)
		if err != nil {
			return err
		}
		defer first.kill()
		due, err := dueAll(ctx, d.db, handed, 2*time.Second, 1)
		if err != nil {
			return err
		}
		half, err := d.ended(ctx, due, d.n/2, deliverWithin)
		if err != nil {
			return err
		}
		first.kill()
		killed := time.Now()
		d.say("%s: %d of %d ticks have ended after %.1f s, and the worker is killed", handed, half, d.n, killed.Sub(due).Seconds())

		working, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- work(working, d.client) }()
		all, err := d.ended(ctx, due, d.n, deliverWithin)
		took := time.Since(killed)
		stop()
		if err := errors.Join(err, <-done); err != nil {
			return err
		}
		var ticks, schedules, again int
		if err := d.db.QueryRow(ctx, `SELECT count(*), count(DISTINCT schedule_id), count(*) FILTER (WHERE attempt > 1) FROM tick WHERE nominal_at = $1`, due).Scan(&ticks, &schedules, &again); err != nil {
			return err
		}
		d.report.figure("ticks", float64(d.n))
		d.report.figure("ended_before_the_kill", float64(half))
		d.report.figure("seconds_after_the_kill", took.Seconds())
		d.report.figure("delivered_again", float64(again))
		if rate := float64(half) / killed.Sub(due).Seconds(); o.scale < 1 { // the first ticks of a small herd wait for the sweep
			d.report.figure("per_second_before_the_kill", rate)
		} else {
			d.report.atLeast("per_second_before_the_kill", rate, pullRate)
		}
		d.report.atMost("lost", float64(d.n-all), 0)
		d.report.atMost("doubled", float64(ticks-schedules), 0)
		return nil
	})
}

// ended waits until n ticks of a time are recorded as succeeded, and returns how many are.
func (d *deliveries) ended(ctx context.Context, due time.Time, n int, within time.Duration) (ended int, err error) {
	var asked time.Time
	var failed error
	_, err = d.server.await(ctx, within, func() bool {
		if time.Since(asked) < askEvery {
			return false
		}
		asked = time.Now()
		failed = d.db.QueryRow(ctx, `SELECT count(*) FROM tick WHERE nominal_at = $1 AND state = 2`, due).Scan(&ended)
		return failed != nil || ended >= n
	})
	return ended, errors.Join(err, failed)
}

// work runs SDK workers for the handed ticks until ctx ends.
func work(ctx context.Context, client *carillon.Client) error {
	var running sync.WaitGroup
	errs := make([]error, deliverWorkers)
	for i := range errs {
		worker := carillon.NewWorker(client, carillon.WorkerConfig{Concurrency: 1000, Lease: handedLease, Wait: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
		carillon.Handle(worker, handed, func(context.Context, carillon.Tick[json.RawMessage]) error { return nil })
		running.Go(func() { errs[i] = worker.Run(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// worker is a process of SDK workers.
type worker struct {
	cmd  *exec.Cmd
	done sync.Once
}

// startWork starts this program as a process that works until it is killed.
func startWork(at announcement) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, workCommand)
	cmd.Env = append(os.Environ(), "CARILLON_URL="+at.URL, "CARILLON_API_KEY="+at.Token)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return &worker{cmd: cmd}, nil
}

// kill kills the process and waits for its end.
func (w *worker) kill() {
	w.done.Do(func() {
		_ = w.cmd.Process.Kill() // it fails if the process has ended
		_ = w.cmd.Wait()         // it was killed
	})
}

// workerCommand is the command that startWork runs.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    workCommand,
		Short:  "Work at the ticks of handover until it is killed",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := carillon.New(carillon.Config{})
			if err != nil {
				return err
			}
			defer client.Close()
			return work(cmd.Context(), client)
		},
	}
}
