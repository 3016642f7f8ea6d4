package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	deliverTicks   = 100_000
	deliverWorkers = 4
	deliverBatch   = 500
	deliverWithin  = 5 * time.Minute
	askEvery       = 300 * time.Millisecond
	pullRate       = 10_000 // a second
	pushRate       = 2_500
	batchRate      = 10_000
)

// pull fires a herd, whose ticks SDK workers on this machine complete.
func pull(ctx context.Context, o options, p *progress) (*report, error) {
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		if err := d.put(ctx, "pulled"); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var running []*carillon.Worker
		for i := range deliverWorkers {
			worker := carillon.NewWorker(d.client, carillon.WorkerConfig{
				Name: fmt.Sprint("worker-", i), Concurrency: 1000, Wait: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
			})
			carillon.Handle[json.RawMessage](worker, "pulled", func(context.Context, carillon.Tick[json.RawMessage]) error {
				d.came.Add(1)
				return nil
			})
			running = append(running, worker)
		}
		done := make(chan error, len(running))
		for _, worker := range running {
			go func() { done <- worker.Run(ctx) }()
		}
		err := d.fire(ctx, "pulled", pullRate)
		cancel()
		for range running {
			<-done // the record shows ticks that it did not end
		}
		return err
	})
}

// push fires a herd to an endpoint on this machine: first one tick in a request, then in batches.
func push(ctx context.Context, o options, p *progress) (*report, error) {
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		for _, one := range []struct {
			name  string
			batch int
			rate  float64
		}{{"pushed", 1, pushRate}, {"batched", deliverBatch, batchRate}} {
			stop, err := d.listen(ctx, one.name, one.batch)
			if err != nil {
				return err
			}
			err = d.put(ctx, one.name)
			if err == nil {
				err = d.fire(ctx, one.name, one.rate)
			}
			stop()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// deliveries counts ticks that are delivered to a client on this machine.
type deliveries struct {
	*progress
	at     announcement
	server *process
	client *carillon.Client
	db     *pgx.Conn
	report *report
	n      int
	came   atomic.Int64
}

// delivered calls run with a new carillon dev, and returns the report.
func delivered(ctx context.Context, o options, p *progress, run func(context.Context, *deliveries) error) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	server, at, end, err := openDev(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer end()
	client, err := carillon.New(carillon.Config{URL: at.URL, Token: at.Token})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	db, err := pgx.Connect(ctx, at.DatabaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if _, err := db.Exec(ctx, `UPDATE tenant SET quotas = quotas || '{"ticks_per_second": 10000000}'`); err != nil {
		return nil, err
	}
	d := &deliveries{progress: p, at: at, server: server, client: client, db: db, report: &report{}, n: o.scaled(deliverTicks)}
	return d.report, run(ctx, d)
}

// listen serves an endpoint that counts its ticks.
func (d *deliveries) listen(ctx context.Context, name string, batch int) (stop func(), err error) {
	return d.serve(ctx, name, batch, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		d.came.Add(int64(bytes.Count(body, []byte(`"tick_id":`))))
		w.WriteHeader(http.StatusNoContent)
	}))
}

// serve serves an endpoint on this machine, and registers it with a workflow of the same name that is pushed to it.
func (d *deliveries) serve(ctx context.Context, name string, batch int, h http.Handler) (stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it returns when it is closed
	}()
	stop = func() {
		_ = server.Close()
		<-done
	}
	_, err = d.client.Endpoints.Put(ctx, name, carillon.EndpointParams{URL: "http://" + listener.Addr().String(), Batch: batch})
	if err == nil {
		_, err = d.client.Workflows.Put(ctx, name, carillon.WorkflowParams{Endpoint: name})
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// put stores the schedules of a workflow.
func (d *deliveries) put(ctx context.Context, workflow string) error {
	sum, err := d.client.Schedules.PutAll(ctx, func(yield func(carillon.BulkLine) bool) {
		for i := range d.n {
			line := carillon.BulkLine{Workflow: workflow, Key: fmt.Sprintf("user_%07d", i)}
			line.Spec = carillon.Spec{Timezone: "America/New_York", Cron: carillon.Strings{fmt.Sprintf("%d %d * * *", i%10, farOff)}}
			line.Payload = payloadFor(i, 1)
			if !yield(line) {
				return
			}
		}
	}, carillon.BulkParams{})
	if err == nil && sum.Inserted != d.n {
		err = fmt.Errorf("of %d schedules came %+v", d.n, sum)
	}
	if err != nil {
		return err
	}
	d.say("%s: %d schedules stored", workflow, d.n)
	return analyzed(ctx, d.db)
}

// fire makes the schedules of a workflow due at once. It notes how many a second were delivered, and how many ended in the record.
func (d *deliveries) fire(ctx context.Context, workflow string, least float64) error {
	d.came.Store(0)
	due, err := dueAll(ctx, d.db, workflow, 2*time.Second, 1)
	if err != nil {
		return err
	}
	before, err := costUntilNow(ctx, d.db, d.server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	all, err := d.server.await(ctx, deliverWithin, func() bool { return d.came.Load() >= int64(d.n) })
	if err != nil {
		return err
	}
	took := time.Since(due)
	var ticks, ended, schedules int
	var asked time.Time
	recorded, err := d.server.await(ctx, time.Minute, func() bool {
		if time.Since(asked) < askEvery { // counting has a cost, too
			return false
		}
		asked = time.Now()
		err := d.db.QueryRow(ctx, `SELECT count(*) FROM tick WHERE nominal_at = $1 AND state = 2`, due).Scan(&ended)
		return err == nil && ended >= d.n
	})
	if err != nil {
		return err
	}
	whole := time.Since(due)
	after, err := costUntilNow(ctx, d.db, d.server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := d.db.QueryRow(ctx, `SELECT count(*), count(DISTINCT schedule_id) FROM tick WHERE nominal_at = $1`, due).Scan(&ticks, &schedules); err != nil {
		return err
	}
	d.say("%s: %d of %d were delivered in %.1f s; %d are recorded as succeeded after %.1f s", workflow, d.came.Load(), d.n, took.Seconds(), ended, whole.Seconds())
	d.report.figure(workflow+"_ticks", float64(d.n))
	d.report.figure(workflow+"_recorded_seconds", whole.Seconds())
	after.less(before).note(d.report, workflow, d.n)
	if !all || !recorded {
		d.say("%s: not all were delivered", workflow)
	}
	d.report.atLeast(workflow+"_per_second", float64(d.came.Load())/took.Seconds(), least)
	d.report.atMost(workflow+"_lost", float64(d.n-ended), 0)
	d.report.atMost(workflow+"_doubled", float64(ticks-schedules), 0)
	d.report.atMost(workflow+"_repeated", float64(d.came.Load()-int64(d.n)), 0)
	return nil
}
