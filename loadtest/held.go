package main

import (
	"context"
	"fmt"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	heldTicks   = 50_000
	heldFor     = 2 * time.Minute
	heldWritten = 100 // rows that may be written meanwhile, however many ticks wait
	heldWithin  = 5 * time.Minute
	heldName    = "held"
	heldSettled = 15 * time.Second // a backend reports its counts within 10 s
)

// held parks ticks of a held endpoint and measures the cost. Then it enables the endpoint and measures how soon all are delivered.
func held(ctx context.Context, o options, p *progress) (*report, error) {
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		d.n = o.scaled(heldTicks)
		stop, err := d.listen(ctx, heldName, deliverBatch)
		if err != nil {
			return err
		}
		defer stop()
		if err := d.holdEndpoint(ctx); err != nil {
			return err
		}
		if err := d.put(ctx, heldName); err != nil {
			return err
		}
		if _, err := dueAll(ctx, d.db, heldName, 2*time.Second, 1); err != nil {
			return err
		}
		if err := d.waitHeld(ctx); err != nil {
			return err
		}
		return d.letGo(ctx)
	})
}

// holdEndpoint holds the endpoint and changes nothing else of it.
func (d *deliveries) holdEndpoint(ctx context.Context) error {
	e, err := d.client.Endpoints.Get(ctx, heldName)
	if err == nil {
		_, err = d.client.Endpoints.Put(ctx, heldName, carillon.EndpointParams{URL: e.URL, Batch: e.Batch, State: "held"})
	}
	return err
}

// waitHeld notes how many rows are written while all ticks wait.
func (d *deliveries) waitHeld(ctx context.Context) error {
	var n int
	var asked time.Time
	all, err := d.server.await(ctx, heldWithin, func() bool {
		if time.Since(asked) < askEvery {
			return false
		}
		asked = time.Now()
		return d.db.QueryRow(ctx, `SELECT count(*) FROM delayed WHERE why = 'endpoint'`).Scan(&n) == nil && n == d.n
	})
	if err != nil {
		return err
	}
	if !all {
		return fmt.Errorf("of %d ticks %d are held", d.n, n)
	}
	d.say("%d ticks are held", n)
	if _, err := d.server.await(ctx, heldSettled, func() bool { return false }); err != nil {
		return err
	}
	before, err := d.heldRows(ctx)
	if err != nil {
		return err
	}
	costBefore, err := costUntilNow(ctx, d.db, d.server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if _, err := d.server.await(ctx, heldFor, func() bool { return false }); err != nil {
		return err
	}
	costAfter, err := costUntilNow(ctx, d.db, d.server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if _, err := d.server.await(ctx, heldSettled, func() bool { return false }); err != nil {
		return err
	}
	after, err := d.heldRows(ctx)
	if err != nil {
		return err
	}
	c := costAfter.less(costBefore)
	d.say("in %s %d rows were written", heldFor, after-before)
	d.report.figure("ticks", float64(d.n))
	d.report.figure("seconds", heldFor.Seconds())
	d.report.figure("wal_bytes", float64(c.wal))
	d.report.figure("postgres_cpu_ms", float64(c.postgres.Milliseconds()))
	d.report.figure("carillon_cpu_ms", float64(c.ours.Milliseconds()))
	d.report.atMost("rows_written", float64(after-before), heldWritten)
	return nil
}

// heldRows returns how many rows of delayed, chunk and the partitions of tick were written so far.
func (d *deliveries) heldRows(ctx context.Context) (n int64, err error) {
	err = d.db.QueryRow(ctx, `
		SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint
		FROM pg_stat_user_tables
		WHERE relname IN ('delayed', 'chunk') OR relname LIKE 'tick\_%'`).Scan(&n)
	return n, err
}

// letGo enables the endpoint, and notes how soon all ticks are delivered and recorded.
func (d *deliveries) letGo(ctx context.Context) error {
	d.came.Store(0)
	e, err := d.client.Endpoints.Get(ctx, heldName)
	if err != nil {
		return err
	}
	enabled := time.Now()
	if _, err := d.client.Endpoints.Put(ctx, heldName, carillon.EndpointParams{URL: e.URL, Batch: e.Batch, State: "enabled"}); err != nil {
		return err
	}
	if _, err := d.server.await(ctx, heldWithin, func() bool { return d.came.Load() > 0 }); err != nil {
		return err
	}
	d.report.figure("first_out_seconds", time.Since(enabled).Seconds())
	if _, err := d.server.await(ctx, heldWithin, func() bool { return d.came.Load() >= int64(d.n) }); err != nil {
		return err
	}
	d.say("%d came in %s", d.came.Load(), time.Since(enabled))
	d.report.figure("all_out_seconds", time.Since(enabled).Seconds())
	ended := 0
	if _, err := d.server.await(ctx, heldWithin, func() bool {
		return d.db.QueryRow(ctx, `SELECT count(*) FROM tick WHERE state = 2`).Scan(&ended) == nil && ended >= d.n
	}); err != nil {
		return err
	}
	d.report.atMost("lost", float64(d.n-ended), 0)
	d.report.atMost("repeated", float64(d.came.Load()-int64(d.n)), 0)
	return nil
}
