package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	growDue      = 50_000 // schedules that come due at each size
	growFirings  = 3      // at each size; the median counts
	growIdle     = time.Minute
	growWorkflow = "grow"
	mostGrowth   = 1.5 // of the cost of a tick
	mostIdle     = 3   // percent of a core
	mostMemory   = 400 // MiB
)

// growSizes are the numbers of schedules that are stored besides the due ones.
var growSizes = []struct {
	name   string
	stored int
}{{"small", 100_000}, {"middle", 1_000_000}, {"large", 5_000_000}}

// grow fires the same schedules while more and more others are stored. It measures the cost of a tick, the cost of an idle process with
// the most schedules, and the memory of the process.
func grow(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
	defer cancel()
	b, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer b.close()
	server, err := b.serve(ctx, "grow", b.env)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	g := &growth{bench: b, progress: p, server: server, report: &report{}, n: o.scaled(growDue)}
	if err := g.prepare(ctx); err != nil {
		return nil, err
	}
	at, err := b.announce(server, growWorkflow)
	if err != nil {
		return nil, err
	}
	templates := min(readTemplates, o.scaled(growSizes[0].stored))
	if err := putTemplates(ctx, at, templates, readWorkflow, asleep); err != nil {
		return nil, err
	}
	stored := templates
	var us, wal []float64
	for _, size := range growSizes {
		n := o.scaled(size.stored)
		if err := copyUpTo(ctx, at, templates, stored, n, p); err != nil {
			return nil, err
		}
		stored = n
		c, err := g.cost(ctx, size.name, stored)
		if err != nil {
			return nil, err
		}
		us = append(us, micros(c.postgres+c.ours, g.n))
		wal = append(wal, float64(c.wal)/float64(g.n))
	}
	idle, err := g.idle(ctx, max(3*time.Second, time.Duration(float64(growIdle)*min(1, o.scale))))
	if err != nil {
		return nil, err
	}
	peak, err := peakMemory(server.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	g.report.atMost("us_a_tick_most_of_least", slices.Max(us)/slices.Min(us), mostGrowth)
	g.report.atMost("wal_a_tick_most_of_least", slices.Max(wal)/slices.Min(wal), mostGrowth)
	g.report.atMost("idle_percent_of_a_core", idle, mostIdle)
	g.report.atMost("server_memory_mib", peak, mostMemory)
	g.report.atMost("lost", float64(g.lost), 0)
	g.report.atMost("doubled", float64(g.doubled), 0)
	g.report.atMost("not_handed_out", float64(g.skipped), 0)
	return g.report, nil
}

// asleep returns the spec of a schedule that fires daily, but not during this run.
func asleep(i int) carillon.Spec {
	hour := time.Now().UTC().Hour() + 8 + i/600
	return carillon.Spec{Cron: carillon.Strings{fmt.Sprintf("%d %d * * *", i/10%60, hour%24)}}
}

// growth is a bench with one process of role all, and schedules of one timing that are fired repeatedly.
type growth struct {
	*bench
	*progress
	server                 *served
	report                 *report
	n                      int
	lost, doubled, skipped int
}

// prepare stores the schedules and fires them once, because a first tick costs more than later ones.
func (g *growth) prepare(ctx context.Context) error {
	if err := g.unlimited(ctx, growWorkflow); err != nil {
		return err
	}
	if err := g.put(ctx, g.server, growWorkflow, g.n, func(yield func(carillon.BulkLine) bool) {
		for i := range g.n {
			line := carillon.BulkLine{Workflow: growWorkflow, Key: fmt.Sprintf("user_%07d", i)}
			line.Spec, line.Policy.Overlap = asleep(0), "allow_all"
			line.Payload = payloadFor(i, 1)
			if !yield(line) {
				return
			}
		}
	}); err != nil {
		return err
	}
	if err := analyzed(ctx, g.db); err != nil {
		return err
	}
	_, _, err := g.fire(ctx)
	return err
}

// cost fires the schedules several times while so many are stored, and notes the medians of CPU and WAL.
func (g *growth) cost(ctx context.Context, name string, stored int) (cost, error) {
	var all []cost
	var seconds []float64
	for range growFirings {
		c, took, err := g.fire(ctx)
		if err != nil {
			return c, err
		}
		g.say("%d stored: %d ticks in %.2f s, %.1f µs each", stored, g.n, took, micros(c.postgres+c.ours, g.n))
		all, seconds = append(all, c), append(seconds, took)
	}
	slices.SortFunc(all, func(a, b cost) int { return cmp.Compare(a.postgres+a.ours, b.postgres+b.ours) })
	slices.Sort(seconds)
	middle := all[len(all)/2]
	// The median is taken of WAL too, because the first change of a page after a checkpoint writes the whole page to the WAL.
	slices.SortFunc(all, func(a, b cost) int { return cmp.Compare(a.wal, b.wal) })
	middle.wal = all[len(all)/2].wal
	g.report.figure(name+"_stored", float64(stored))
	g.report.figure(name+"_ticks_per_second", float64(g.n)/seconds[len(seconds)/2])
	middle.note(g.report, name, g.n)
	return middle, nil
}

// fire makes the schedules due once. No worker leases the ticks, so opening is the last step.
func (g *growth) fire(ctx context.Context) (c cost, seconds float64, err error) {
	if _, err := g.db.Exec(ctx, `TRUNCATE ready`); err != nil { // ready ticks that no worker leases must not add up
		return c, 0, err
	}
	due, err := dueAll(ctx, g.db, growWorkflow, 2*time.Second, 1)
	if err != nil {
		return c, 0, err
	}
	before, err := costUntilNow(ctx, g.db, g.server.cmd.Process.Pid)
	if err != nil {
		return c, 0, err
	}
	if err := awaited(ctx, g.server, "opened", func() (done bool, err error) {
		err = g.db.QueryRow(ctx, `
			SELECT clock_timestamp() > $1
				AND NOT EXISTS (SELECT FROM fair_turn)
				AND NOT EXISTS (SELECT FROM generate_series(0, 63) s CROSS JOIN LATERAL (SELECT FROM cohort WHERE shard = s AND due_at <= $1 ORDER BY due_at LIMIT 1) c)
				AND NOT EXISTS (SELECT FROM chunk WHERE opened_at IS NULL),
				extract(epoch FROM clock_timestamp() - $1)::float8`, due).Scan(&done, &seconds)
		return done, err
	}); err != nil {
		return c, 0, err
	}
	after, err := costUntilNow(ctx, g.db, g.server.cmd.Process.Pid)
	if err != nil {
		return c, 0, err
	}
	var ticks, schedules, skipped int
	err = g.db.QueryRow(ctx, `
		SELECT count(*), count(DISTINCT schedule_id), count(*) FILTER (WHERE state <> 1)
		FROM tick
		WHERE nominal_at = $1`, due).Scan(&ticks, &schedules, &skipped)
	g.lost, g.doubled, g.skipped = g.lost+g.n-schedules, g.doubled+ticks-schedules, g.skipped+skipped
	return after.less(before), seconds, err
}

// idle returns the CPU of PostgreSQL and the process, in percent of a core, over length while nothing is due. It waits first until upkeep
// after the firings is done.
func (g *growth) idle(ctx context.Context, length time.Duration) (float64, error) {
	if _, err := g.db.Exec(ctx, `TRUNCATE ready`); err != nil {
		return 0, err
	}
	if err := analyzed(ctx, g.db); err != nil {
		return 0, err
	}
	if _, err := g.db.Exec(ctx, `CHECKPOINT`); err != nil {
		return 0, err
	}
	var ends [2]cost
	var times [2]time.Time
	for i := range ends {
		over := time.Now().Add(length)
		if _, err := g.server.await(ctx, 2*length, func() bool { return !time.Now().Before(over) }); err != nil {
			return 0, err
		}
		var err error
		if ends[i], err = costUntilNow(ctx, g.db, g.server.cmd.Process.Pid); err != nil {
			return 0, err
		}
		times[i] = time.Now()
	}
	used := ends[1].less(ends[0])
	wall := times[1].Sub(times[0]).Seconds()
	g.report.figure("idle_postgres_percent_of_a_core", 100*used.postgres.Seconds()/wall)
	g.report.figure("idle_carillon_percent_of_a_core", 100*used.ours.Seconds()/wall)
	g.report.figure("idle_wal_bytes_a_second", float64(used.wal)/wall)
	return 100 * (used.postgres + used.ours).Seconds() / wall, nil
}
