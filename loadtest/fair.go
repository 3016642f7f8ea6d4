package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/tenants"
)

const (
	fairGiant   = 500_000
	fairSmall   = 1_000 // tenants
	fairEach    = 10    // schedules of a small one
	fairRate    = 10_000
	fairMeasure = 15 * time.Second
)

// fair has a thousand small tenants fire twice: alone, and at the moment at which a giant has far more due than its quota
// lets through at once.
func fair(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	b, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer b.close()
	server, err := b.serve(ctx, "fair", b.env)
	if err != nil {
		return nil, err
	}
	defer server.stop()

	small, giant, rate := o.scaled(fairSmall), o.scaled(fairGiant), o.scaled(fairRate)
	load := fairLoad{b, server}
	p.say("storing %d schedules of a giant, and %d of each of %d small tenants", giant, fairEach, small)
	late := time.Now().UTC().Add(24 * time.Hour) // until all is stored
	if err := load.store(ctx, "giant", rate, giant, late); err != nil {
		return nil, err
	}
	for i := range small {
		if err := load.make(ctx, fmt.Sprint("small-", i), tenants.Defaults().TicksPerSecond); err != nil {
			return nil, err
		}
	}
	writers, group := errgroup.WithContext(ctx)
	writers.SetLimit(8)
	for i := range small {
		writers.Go(func() error { return load.fill(group, fmt.Sprint("small-", i), fairEach, late) })
	}
	if err := writers.Wait(); err != nil {
		return nil, err
	}
	if err := analyzed(ctx, b.db); err != nil {
		return nil, err
	}
	alone, err := load.fire(ctx, p, "the small ones alone", "name <> 'giant'", small*fairEach)
	if err != nil {
		return nil, err
	}
	beside, err := load.fire(ctx, p, "all at once", "true", small*fairEach)
	if err != nil {
		return nil, err
	}
	began, err := load.giant(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(fairMeasure):
	}
	ended, err := load.giant(ctx)
	if err != nil {
		return nil, err
	}
	r := &report{}
	perSecond := float64(ended.swept-began.swept) / ended.at.Sub(began.at).Seconds()
	r.figure("giant_schedules", float64(giant))
	r.figure("small_tenants", float64(small))
	r.figure("giant_quota_per_second", float64(rate))
	r.figure("giant_per_second", perSecond)
	r.figure("small_p99_alone_ms", alone)
	r.figure("small_p99_beside_giant_ms", beside)
	r.atMost("small_p99_ratio", beside/max(alone, 1), 2)
	r.atMost("small_p99_seconds", beside/1000, 3)
	if ended.swept < giant { // else it was done before the end
		r.atMost("giant_off_quota_percent", 100*math.Abs(perSecond/float64(rate)-1), 10)
	}
	return r, nil
}

// fairLoad stores what fair fires.
type fairLoad struct {
	*bench
	server *served
}

func (l fairLoad) make(ctx context.Context, name string, perSecond int) error {
	q := tenants.Wide()
	q.TicksPerSecond = perSecond
	_, err := tenants.Ensure(ctx, l.db, name, q)
	return err
}

func (l fairLoad) store(ctx context.Context, name string, perSecond, n int, at time.Time) error {
	if err := l.make(ctx, name, perSecond); err != nil {
		return err
	}
	return l.fill(ctx, name, n, at)
}

// fill stores n schedules of a tenant, a hundred thousand a call.
func (l fairLoad) fill(ctx context.Context, tenant string, n int, at time.Time) error {
	for from := 0; from < n; from += 100_000 {
		upto := min(n, from+100_000)
		if err := l.put(ctx, l.server, tenant, upto-from, fairLines(from, upto, at)); err != nil {
			return err
		}
	}
	return nil
}

func fairLines(from, upto int, at time.Time) iter.Seq[carillon.BulkLine] {
	cron := carillon.Strings{fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour())}
	return func(yield func(carillon.BulkLine) bool) {
		for i := from; i < upto; i++ {
			if !yield(carillon.BulkLine{Workflow: "fair", Key: fmt.Sprint("user-", i), Params: carillon.Params{Spec: carillon.Spec{Cron: cron}}}) {
				return
			}
		}
	}
}

// fire has the cohorts of tenants come due in three seconds, when all members have joined, and returns the p99 of how late the
// small ones' ticks were handed out, in milliseconds. The moment is their nominal time too, whatever their specs say.
func (l fairLoad) fire(ctx context.Context, p *progress, what, who string, ticks int) (p99 float64, err error) {
	var due time.Time
	var known int64
	if err := l.db.QueryRow(ctx, `SELECT COALESCE(max(id), 0) FROM chunk`).Scan(&known); err != nil {
		return 0, err
	}
	if err = l.db.QueryRow(ctx, `SELECT date_trunc('second', clock_timestamp()) + interval '3 seconds'`).Scan(&due); err != nil {
		return 0, err
	}
	if _, err := l.db.Exec(ctx, `UPDATE cohort SET next_at = $1, due_at = $1 WHERE tenant_id IN (SELECT id FROM tenant WHERE `+who+`)`, due); err != nil {
		return 0, err
	}
	p.say("%s: due at %s", what, due.Format(time.TimeOnly))
	for {
		var n int
		err := l.db.QueryRow(ctx, `
			SELECT COALESCE(sum(ticks), 0)
			FROM chunk
			WHERE id > $1 AND opened_at IS NOT NULL AND tenant_id <> (SELECT id FROM tenant WHERE name = 'giant')`, known).Scan(&n) // not of the ticks: to read the giant's takes a core
		if err != nil {
			return 0, err
		}
		if n >= ticks {
			err := l.db.QueryRow(ctx, `
				SELECT count(*), (percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM fired_at - nominal_at)) * 1000)::float8
				FROM tick
				WHERE nominal_at = $1 AND tenant_id <> (SELECT id FROM tenant WHERE name = 'giant')`, due).Scan(&n, &p99)
			p.say("%s: %d ticks of small tenants, p99 %.0f ms", what, n, p99)
			return p99, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: %d of %d ticks of small tenants: %w", what, n, ticks, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// giantSwept is how much of the giant's herd was swept by when.
type giantSwept struct {
	swept int
	at    time.Time
}

func (l fairLoad) giant(ctx context.Context) (g giantSwept, err error) {
	err = l.db.QueryRow(ctx, `
		SELECT COALESCE(sum(ticks), 0), clock_timestamp()
		FROM chunk
		WHERE tenant_id = (SELECT id FROM tenant WHERE name = 'giant')`).Scan(&g.swept, &g.at)
	return g, err
}
