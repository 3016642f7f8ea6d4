package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	lateStored   = 1_000_000
	lateRate     = 500 // ticks a second
	lateEvery    = 10  // seconds between two ticks of a schedule
	lateFor      = 2 * time.Minute
	lateLeast    = 20 * time.Second
	lateFired    = 150 // ms, p99
	lateReceived = 500
	lateWorkflow = "late"
)

// punctual pushes ticks at a steady rate out of many stored schedules. It measures how long after their times they are handed out and
// received.
func punctual(ctx context.Context, o options, p *progress) (*report, error) {
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		n := o.scaled(lateStored)
		if err := fill(ctx, d.at, n, readWorkflow, p); err != nil {
			return fmt.Errorf("load schedules: %w", err)
		}
		p.say("%d schedules stored", n)
		inbox := &inbox{at: map[string]arrival{}}
		stop, err := d.serve(ctx, lateWorkflow, 1, inbox)
		if err != nil {
			return err
		}
		defer stop()
		length := o.lasting(lateFor, lateLeast).Truncate(time.Second)
		from := time.Now().Truncate(time.Second).Add(20 * time.Second)
		if err := d.steady(ctx, lateRate, from, from.Add(length)); err != nil {
			return err
		}
		want := int(length/time.Second) * lateRate
		all, err := d.server.await(ctx, time.Until(from)+length+time.Minute, func() bool { return inbox.count() >= want })
		if err != nil {
			return err
		}
		if !all {
			p.say("%d of %d ticks were received", inbox.count(), want)
		}
		var p50, p99 float64
		var ticks int
		if err := d.db.QueryRow(ctx, `
			SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY late), percentile_cont(0.99) WITHIN GROUP (ORDER BY late)
			FROM (SELECT (extract(epoch FROM fired_at - nominal_at) * 1000)::float8 AS late FROM tick) t`).Scan(&ticks, &p50, &p99); err != nil {
			return err
		}
		d.report.figure("stored", float64(n))
		d.report.figure("ticks", float64(ticks))
		d.report.figure("fired_p50_ms", p50)
		received := inbox.times(from)
		d.report.figure("received_p50_ms", milliseconds(percentile(received, 0.5)))
		d.report.atMost("fired_p99_ms", p99, lateFired)
		d.report.atMost("received_p99_ms", milliseconds(percentile(received, 0.99)), lateReceived)
		d.report.atMost("lost", float64(want-inbox.count()), 0)
		return nil
	})
}

// steady stores schedules that fire at a constant rate from one moment to another, and not after it.
func (d *deliveries) steady(ctx context.Context, perSecond int, from, to time.Time) error {
	n := perSecond * lateEvery
	sum, err := d.client.Schedules.PutAll(ctx, func(yield func(carillon.BulkLine) bool) {
		for i := range n {
			line := carillon.BulkLine{Workflow: lateWorkflow, Key: fmt.Sprintf("user_%08d", i)}
			line.Spec = carillon.Spec{
				Intervals: []carillon.Interval{{Every: fmt.Sprintf("%ds", lateEvery), Offset: fmt.Sprintf("%ds", i%lateEvery)}},
				StartAt:   from.UTC().Format(time.RFC3339), EndAt: to.Add(-time.Second).UTC().Format(time.RFC3339),
			}
			line.Policy = carillon.Policy{Overlap: "allow_all", Missed: "all"}
			line.Payload = payloadFor(i, 1)
			if !yield(line) {
				return
			}
		}
	}, carillon.BulkParams{})
	if err == nil && sum.Inserted != n {
		err = fmt.Errorf("of %d schedules came %+v", n, sum)
	}
	if err == nil && time.Now().After(from) {
		err = errTooSlow
	}
	return err
}

// inbox is an endpoint that notes the first arrival of each tick.
type inbox struct {
	mu sync.Mutex
	at map[string]arrival
}

// arrival is the nominal time of a tick, and how long after it the tick was received.
type arrival struct {
	due  time.Time
	late time.Duration
}

func (i *inbox) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.at)
}

// times returns how late ticks with nominal times from a moment on were received.
func (i *inbox) times(from time.Time) (list []time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range i.at {
		if !a.due.Before(from) {
			list = append(list, a.late)
		}
	}
	return list
}

// ServeHTTP receives a tick.
func (i *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	var t carillon.Tick[json.RawMessage]
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(body)).Decode(&t)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	i.mu.Lock()
	if _, known := i.at[t.TickID]; !known {
		i.at[t.TickID] = arrival{t.Timestamp, now.Sub(t.Timestamp)}
	}
	i.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}
