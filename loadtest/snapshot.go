package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	snapshotRate     = 1000        // firings a second
	snapshotEvery    = time.Minute // between two firings of a cohort
	snapshotFor      = 20 * time.Minute
	snapshotLeast    = 30 * time.Second
	snapshotBatch    = 100
	snapshotLate     = 500 // ms, p99 in the last part
	snapshotPart     = 10  // the first and the last of so many parts of the time are compared
	snapshotWorkflow = "snapshot"
)

// snapshotted fires cohorts of one schedule while one snapshot stays open in another connection. It compares the blocks that each statement
// reads at the end and at the start.
func snapshotted(ctx context.Context, o options, p *progress) (*report, error) {
	var stop func()
	var err error
	if o.databaseURL, stop, err = database(ctx, o, p, "shared_preload_libraries=pg_stat_statements"); err != nil {
		return nil, err
	}
	defer stop()
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		if _, err := d.db.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
			return fmt.Errorf("count what statements read: %w", err)
		}
		stop, err := d.listen(ctx, snapshotWorkflow, snapshotBatch)
		if err != nil {
			return err
		}
		defer stop()
		return d.snapshot(ctx, o.scaled(snapshotRate), o.lasting(snapshotFor, snapshotLeast).Truncate(time.Second))
	})
}

// snapshot fires rate ticks a second for length, beside an open snapshot.
func (d *deliveries) snapshot(ctx context.Context, rate int, length time.Duration) error {
	n := rate * int(snapshotEvery/time.Second)
	if err := d.lonely(ctx, n); err != nil {
		return err
	}
	d.say("%d cohorts of one stored", n)
	if err := analyzed(ctx, d.db); err != nil {
		return err
	}
	old, err := openSnapshot(ctx, d.at.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = old.Close(context.WithoutCancel(ctx)) }()
	part := length / snapshotPart
	first, err := d.reads(ctx, part)
	if err != nil {
		return err
	}
	d.say("the snapshot is open; %d ticks were received", d.came.Load())
	if err := d.pause(ctx, length-2*part); err != nil {
		return err
	}
	var end time.Time
	if err := d.db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&end); err != nil {
		return err
	}
	began := time.Now()
	last, err := d.reads(ctx, part)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := old.Ping(ctx); err != nil {
		return fmt.Errorf("the old snapshot did not stay open: %w", err)
	}
	var ticks int
	var p50, p99 float64
	if err := d.db.QueryRow(ctx, `
		SELECT count(*), COALESCE(percentile_cont(0.5) WITHIN GROUP (ORDER BY late), 0), COALESCE(percentile_cont(0.99) WITHIN GROUP (ORDER BY late), 0)
		FROM (SELECT (extract(epoch FROM fired_at - nominal_at) * 1000)::float8 AS late FROM tick WHERE nominal_at >= $1) t`, end).Scan(&ticks, &p50, &p99); err != nil {
		return err
	}
	d.report.figure("cohorts", float64(n))
	d.report.figure("seconds", length.Seconds())
	d.report.figure("ticks", float64(d.came.Load()))
	d.report.figure("ticks_a_second_at_the_end", float64(ticks)/took.Seconds())
	d.report.figure("fired_p50_ms_at_the_end", p50)
	d.compare(first, last, int(length/snapshotEvery))
	d.report.atMost("fired_p99_ms_at_the_end", p99, snapshotLate)
	return nil
}

func (d *deliveries) pause(ctx context.Context, long time.Duration) error {
	_, err := d.server.await(ctx, long, func() bool { return false })
	return err
}

// lonely stores n schedules that fire each minute. Each has another start, so each is alone in its cohort.
func (d *deliveries) lonely(ctx context.Context, n int) error {
	from := time.Now().Truncate(time.Minute).Add(-time.Minute)
	sum, err := d.client.Schedules.PutAll(ctx, func(yield func(carillon.BulkLine) bool) {
		for i := range n {
			line := carillon.BulkLine{Workflow: snapshotWorkflow, Key: fmt.Sprintf("user_%08d", i)}
			line.Spec = carillon.Spec{
				Intervals: []carillon.Interval{{Every: snapshotEvery.String(), Offset: fmt.Sprintf("%ds", i%int(snapshotEvery/time.Second))}},
				StartAt:   from.Add(-time.Duration(i) * time.Second).UTC().Format(time.RFC3339),
			}
			line.Policy.Overlap = "allow_all"
			line.Payload = payloadFor(i, 1)
			if !yield(line) {
				return
			}
		}
	}, carillon.BulkParams{})
	if err == nil && sum.Inserted != n {
		err = fmt.Errorf("of %d schedules came %+v", n, sum)
	}
	return err
}

// openSnapshot opens a transaction on a connection of its own, and takes its snapshot.
func openSnapshot(ctx context.Context, url string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{`SET idle_in_transaction_session_timeout = 0`, `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`, `SELECT count(*) FROM tenant`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	return conn, nil
}
