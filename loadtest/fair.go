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

// fair fires the schedules of a thousand small tenants twice: alone, and together with a giant tenant that has far more due than its
// quota admits at once.
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
	if err := load.storeAll(ctx, giant, rate, small); err != nil {
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
	swept, perSecond, err := load.giantFor(ctx, fairMeasure)
	if err != nil {
		return nil, err
	}
	r := &report{}
	r.figure("giant_schedules", float64(giant))
	r.figure("small_tenants", float64(small))
	r.figure("giant_quota_per_second", float64(rate))
	r.figure("giant_per_second", perSecond)
	r.figure("small_p99_alone_ms", alone)
	r.figure("small_p99_beside_giant_ms", beside)
	r.atMost("small_p99_ratio", beside/max(alone, 1), 2)
	r.atMost("small_p99_seconds", beside/1000, 3)
	if swept < giant { // otherwise it was done before the end
		r.atMost("giant_off_quota_percent", 100*math.Abs(perSecond/float64(rate)-1), 10)
	}
	return r, nil
}

// fairLoad stores and fires the schedules of fair.
type fairLoad struct {
	*bench
	server *served
}

// storeAll stores a giant's schedules, and fairEach schedules for each of some small tenants. None is due before all are stored.
func (l fairLoad) storeAll(ctx context.Context, giant, perSecond, small int) error {
	late := time.Now().UTC().Add(24 * time.Hour)
	if err := l.store(ctx, "giant", perSecond, giant, late); err != nil {
		return err
	}
	for i := range small {
		if err := l.make(ctx, fmt.Sprint("small-", i), tenants.Defaults().TicksPerSecond); err != nil {
			return err
		}
	}
	writers, group := errgroup.WithContext(ctx)
	writers.SetLimit(8)
	for i := range small {
		writers.Go(func() error { return l.fill(group, fmt.Sprint("small-", i), fairEach, late) })
	}
	return writers.Wait()
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

// fill stores n schedules of a tenant, a hundred thousand in each request.
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

// fire makes the cohorts of some tenants due in three seconds, when all members have joined. It returns the p99 lateness, in
// milliseconds, with which the small tenants' ticks were handed out. That moment is also their nominal time, whatever their specs say.
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
		// It reads chunks and no ticks, because reading the ticks of the giant would use a whole core.
		err := l.db.QueryRow(ctx, `
			SELECT COALESCE(sum(ticks), 0)
			FROM chunk
			WHERE id > $1 AND opened_at IS NOT NULL AND tenant_id <> (SELECT id FROM tenant WHERE name = 'giant')`, known).Scan(&n)
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

// giantFor returns how many of the giant's ticks are swept after a while, and how many were swept in each second of it.
func (l fairLoad) giantFor(ctx context.Context, while time.Duration) (swept int, perSecond float64, err error) {
	began, err := l.giant(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := sleep(ctx, while); err != nil {
		return 0, 0, err
	}
	ended, err := l.giant(ctx)
	return ended.swept, float64(ended.swept-began.swept) / ended.at.Sub(began.at).Seconds(), err
}

// giantSwept is how many of the giant's ticks were swept at a moment.
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
