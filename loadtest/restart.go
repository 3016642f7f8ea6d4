package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres/embedded"
)

const (
	restartStored = 100_000
	restartCalm   = 20 * time.Second // before the crash
	restartAfter  = time.Minute      // of ticks after it
	restartDown   = 5 * time.Second  // from the crash to the restart of PostgreSQL
	restartGone   = 10               // s, until no tick is overdue
	restartLate   = 1000             // ms, p99 from then on
	overdue       = time.Second
)

// restarted pushes ticks at a steady rate, crashes PostgreSQL and restarts it. It measures how soon after that no tick is overdue, and how
// late the ticks are then.
func restarted(ctx context.Context, o options, p *progress) (*report, error) {
	if o.databaseURL != "" {
		return nil, errors.New("restart crashes its PostgreSQL, so it starts its own: leave --database-url out")
	}
	w := &workshop{}
	var err error
	if w.dir, err = openFolder(); err != nil {
		return nil, err
	}
	defer w.close()
	server, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(w.dir, "postgres")})
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }() // its data is not needed any more
	if o.databaseURL, err = server.Create(ctx, "carillon"); err != nil {
		return nil, err
	}
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error { return d.outlive(ctx, o, server) })
}

// outlive pushes ticks while the server crashes.
func (d *deliveries) outlive(ctx context.Context, o options, server *embedded.Server) error {
	n := o.scaled(restartStored)
	if err := fill(ctx, d.at, n, readWorkflow, d.progress); err != nil {
		return fmt.Errorf("load schedules: %w", err)
	}
	inbox := &inbox{at: map[string]arrival{}}
	stop, err := d.serve(ctx, lateWorkflow, 1, inbox)
	if err != nil {
		return err
	}
	defer stop()
	length := restartCalm + restartDown + restartAfter
	from := time.Now().Truncate(time.Second).Add(20 * time.Second)
	if err := d.steady(ctx, lateRate, from, from.Add(length)); err != nil {
		return err
	}
	if _, err := d.server.await(ctx, time.Until(from.Add(restartCalm)), func() bool { return false }); err != nil {
		return err
	}
	d.say("%d ticks were received; PostgreSQL crashes", inbox.count())
	down := time.Now()
	if err := syscall.Kill(server.Pid(), syscall.SIGQUIT); err != nil { // as pg_ctl stop -m immediate does
		return err
	}
	<-server.Done()
	if _, err := d.server.await(ctx, restartDown-time.Since(down), func() bool { return false }); err != nil {
		return err
	}
	if err := server.Restart(ctx); err != nil {
		return err
	}
	back := time.Now()
	d.say("PostgreSQL is back after %.1f s", back.Sub(down).Seconds())
	want := int(length/time.Second) * lateRate
	if _, err := d.server.await(ctx, time.Until(from.Add(length))+2*time.Minute, func() bool { return inbox.count() >= want }); err != nil {
		return err
	}
	return d.recovered(ctx, inbox, back, want)
}

// recovered reads from the record when ticks were handed out.
func (d *deliveries) recovered(ctx context.Context, inbox *inbox, back time.Time, want int) error {
	db, err := pgx.Connect(ctx, d.at.DatabaseURL) // the earlier connection ended with the server
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	settled := back.Add(restartGone * time.Second)
	var ticks int
	var gone, p99 float64
	if err := db.QueryRow(ctx, `
		SELECT count(*),
			COALESCE(extract(epoch FROM max(fired_at) FILTER (WHERE fired_at - nominal_at > $3 AND fired_at > $1) - $1), 0)::float8,
			COALESCE(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM fired_at - nominal_at) * 1000) FILTER (WHERE nominal_at >= $2), 0)::float8
		FROM tick`, back, settled, overdue).Scan(&ticks, &gone, &p99); err != nil {
		return err
	}
	d.report.figure("ticks", float64(ticks))
	d.report.figure("received_p99_ms", milliseconds(percentile(inbox.times(settled), 0.99)))
	d.report.atMost("overdue_gone_seconds", gone, restartGone)
	d.report.atMost("fired_p99_ms", p99, restartLate)
	d.report.atMost("lost", float64(want-inbox.count()), 0)
	return nil
}
