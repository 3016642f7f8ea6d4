package main

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	herdSchedules = 1_000_000
	herdSlice     = 100_000 // schedules in one request
	mixTenants    = 1_000
	mixSpecs      = 20 // of a tenant
	mixEach       = 50 // schedules of a spec
	mixWriters    = 6  // tenants stored at once
	loneTenants   = 1_000
	loneEach      = 300 // schedules of a tenant, each with a spec of its own
	mixSpread     = 30  // seconds over which they are due
	herdWithin    = 10 * time.Minute
	mostMicros    = 50

	besideRate     = 1_000 // schedules a second that are stored beside a herd
	besideRequests = 10    // in which they come
	mostWAL        = 400
)

// farOff is an hour of the day that is far away in UTC and in New York. So schedules that are made due by hand do not come due by
// themselves as well.
var farOff = (time.Now().UTC().Hour() + 7) % 24

// daily returns the spec of all schedules of a herd.
func daily(int) carillon.Spec {
	return carillon.Spec{Timezone: "America/New_York", Cron: carillon.Strings{fmt.Sprintf("0 %d * * *", farOff)}}
}

// herd makes the schedules of one tenant due at one instant. No worker leases the ticks, so opening is the last step. Then it does
// so again while other schedules are stored that share their cohorts.
func herd(ctx context.Context, o options, p *progress) (*report, error) {
	return measured(ctx, o, p, func(ctx context.Context, m *muster) error {
		n := o.scaled(herdSchedules)
		if err := m.unlimited(ctx, "herd"); err != nil {
			return err
		}
		for from := 0; from < n; from += herdSlice {
			if err := m.add(ctx, "herd", "herd", from, min(n, from+herdSlice), daily); err != nil {
				return err
			}
		}
		h, err := m.fire(ctx, "herd", 1, alone)
		if err != nil {
			return err
		}
		h.note(m.report, "")
		m.report.atLeast("swept_of_floor", h.swept/h.floor, 20)
		m.report.atLeast("opened_of_floor", h.opened/h.floor, 1.3)
		m.report.atMost("us_a_tick", micros(h.all().postgres+h.all().ours, h.n), mostMicros)
		m.report.atMost("wal_bytes_a_tick", float64(h.all().wal)/float64(h.n), mostWAL)
		beside, err := m.fire(ctx, "herd", 1, func() func() (float64, error) { return m.upserting(ctx, "herd", daily) })
		if err != nil {
			return err
		}
		beside.note(m.report, "upserted_")
		m.report.figure("upserted_per_second", beside.beside)
		return nil
	})
}

// mix makes the schedules of many tenants due within a minute: first those that share their specs with others, then those that do
// not.
func mix(ctx context.Context, o options, p *progress) (*report, error) {
	return measured(ctx, o, p, func(ctx context.Context, m *muster) error {
		many, lone := o.scaled(mixTenants), o.scaled(loneTenants)
		for i := range max(many, lone) {
			if err := m.unlimited(ctx, fmt.Sprint("mix-", i)); err != nil {
				return err
			}
		}
		writers, group := errgroup.WithContext(ctx)
		writers.SetLimit(mixWriters)
		for i := range max(many, lone) {
			writers.Go(func() error {
				name := fmt.Sprint("mix-", i)
				if i < many {
					if err := m.add(group, name, "mix", 0, mixSpecs*mixEach, func(k int) carillon.Spec {
						return carillon.Spec{Timezone: "America/New_York", Cron: carillon.Strings{fmt.Sprintf("%d %d * * *", k%mixSpecs, farOff)}}
					}); err != nil {
						return err
					}
				}
				if i >= lone {
					return nil
				}
				return m.add(group, name, "lone", 0, loneEach, func(k int) carillon.Spec {
					return carillon.Spec{Cron: carillon.Strings{fmt.Sprintf("%d %d * * *", k%60, (farOff+k/60)%24)}}
				})
			})
		}
		if err := writers.Wait(); err != nil {
			return err
		}
		for _, one := range []struct {
			workflow      string
			swept, opened float64
		}{{"mix", 10, 1.2}, {"lone", 1.7, 0.8}} {
			h, err := m.fire(ctx, one.workflow, mixSpread, alone)
			if err != nil {
				return err
			}
			h.note(m.report, one.workflow+"_")
			m.report.atLeast(one.workflow+"_swept_of_floor", h.swept/h.floor, one.swept)
			m.report.atLeast(one.workflow+"_opened_of_floor", h.opened/h.floor, one.opened)
		}
		return nil
	})
}

// muster is a bench with many stored schedules, and the floor to compare with.
type muster struct {
	*bench
	*progress
	report *report
	server *served // while schedules are stored
	floor  *perRow
	rows   int // of the floor
	mu     sync.Mutex
	stored map[string]int
}

// measured calls run, which stores and fires schedules, with a fresh bench.
func measured(ctx context.Context, o options, p *progress, run func(context.Context, *muster) error) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	b, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer b.close()
	m := &muster{bench: b, progress: p, report: &report{}, rows: o.scaled(floorRows), stored: map[string]int{}}
	if m.floor, err = newFloor(ctx, b.url, o.scaled(floorStored)); err != nil {
		return nil, err
	}
	defer m.floor.close(ctx)
	if m.server, err = b.serve(ctx, "api", b.env, "--role", "api"); err != nil {
		return nil, err
	}
	defer func() { m.server.stop() }()
	return m.report, run(ctx, m)
}

// add stores the schedules from..to-1 of a tenant.
func (m *muster) add(ctx context.Context, tenant, workflow string, from, to int, spec func(int) carillon.Spec) error {
	m.mu.Lock()
	m.stored[workflow] += to - from
	m.mu.Unlock()
	var lines iter.Seq[carillon.BulkLine] = func(yield func(carillon.BulkLine) bool) {
		for i := from; i < to; i++ {
			line := carillon.BulkLine{Workflow: workflow, Key: fmt.Sprintf("user_%07d", i)}
			line.Spec, line.Policy.Overlap = spec(i), "allow_all"
			line.Payload = map[string]any{"user": i, "template": "daily-digest"}
			if !yield(line) {
				return
			}
		}
	}
	return m.put(ctx, m.server, tenant, to-from, lines)
}

// fired is the outcome of a herd: rates a second, and costs.
type fired struct {
	swept, opened, floor           float64
	sweeping, opening              cost
	n, lost, doubled, skipped, not int // not: fired although they were not due
	beside                         float64
}

func (f fired) all() cost { return f.sweeping.plus(f.opening) }

func (f fired) note(r *report, name string) {
	n := f.n
	r.figure(name+"schedules", float64(n))
	r.figure(name+"floor_per_second", f.floor)
	r.figure(name+"swept_per_second", f.swept)
	r.figure(name+"opened_per_second", f.opened)
	f.sweeping.note(r, name+"sweep", n)
	f.opening.note(r, name+"open", n)
	r.atMost(name+"lost", float64(f.lost), 0)
	r.atMost(name+"doubled", float64(f.doubled), 0)
	r.atMost(name+"not_handed_out", float64(f.skipped), 0)
	r.atMost(name+"not_due", float64(f.not), 0)
}

// fire makes all schedules of a workflow due. One process sweeps them, and when it is done another one opens them, so that each has
// the machine to itself. The floor is the mean of one before and one after.
// beside starts other work, which goes on meanwhile. stop ends it and returns how much of it was done a second.
func (m *muster) fire(ctx context.Context, workflow string, spread int, beside func() (stop func() (float64, error))) (f fired, err error) {
	m.say("%s: %d schedules stored", workflow, m.stored[workflow])
	if err := analyzed(ctx, m.db); err != nil {
		return f, err
	}
	first, err := m.floor.measure(ctx, m.rows)
	if err != nil {
		return f, err
	}
	before, err := m.seen(ctx)
	if err != nil {
		return f, err
	}
	sweeper, err := m.serve(ctx, "sweep", m.env, "--role", "sweep")
	if err != nil {
		return f, err
	}
	defer sweeper.stop()
	stop := beside()
	defer func() { _, _ = stop() }() // unless it ended below
	due, err := dueAll(ctx, m.db, workflow, 8*time.Second, spread)
	if err != nil {
		return f, err
	}
	swept, err := m.sweepAll(ctx, sweeper, due)
	if err != nil {
		return f, err
	}
	sweeper.stop()
	m.say("%s: swept in %.2f s", workflow, swept.seconds)
	opened, err := m.openAll(ctx, before.chunk, swept.ended)
	if err != nil {
		return f, err
	}
	if f.beside, err = stop(); err != nil {
		return f, err
	}
	m.say("%s: opened in %.2f s", workflow, opened.seconds)
	last, err := m.floor.measure(ctx, m.rows)
	if err != nil {
		return f, err
	}
	f.floor, f.sweeping, f.opening = (first+last)/2, swept.used(), opened.used()
	if err := m.count(ctx, workflow, before, due, &f); err != nil {
		return f, err
	}
	f.swept, f.opened = float64(f.n)/swept.seconds, float64(f.n)/opened.seconds
	return f, nil
}

// phase is the sweeping or the opening of a herd, by one process.
type phase struct {
	began, ended cost
	seconds      float64
}

func (p phase) used() cost { return p.ended.less(p.began) }

// sweepAll waits until all cohorts that are due are swept.
func (m *muster) sweepAll(ctx context.Context, sweeper *served, due time.Time) (p phase, err error) {
	if _, err := m.db.Exec(ctx, `VACUUM (ANALYZE) cohort`); err != nil { // making them due left old versions of their rows
		return p, err
	}
	if p.began, err = costUntilNow(ctx, m.db, sweeper.cmd.Process.Pid); err != nil {
		return p, err
	}
	if err := awaited(ctx, sweeper, "swept", func() (swept bool, err error) { // a cheap query, so that it does not disturb the measurement
		err = m.db.QueryRow(ctx, `
			SELECT NOT EXISTS (SELECT FROM fair_turn)
				AND NOT EXISTS (SELECT FROM generate_series(0, 63) s CROSS JOIN LATERAL (SELECT FROM cohort WHERE shard = s AND due_at <= $1 ORDER BY due_at LIMIT 1) c),
				extract(epoch FROM clock_timestamp() - $1)::float8`, due).Scan(&swept, &p.seconds)
		return swept && p.seconds > 0, err
	}); err != nil {
		return p, err
	}
	p.ended, err = costUntilNow(ctx, m.db, sweeper.cmd.Process.Pid)
	return p, err
}

// openAll starts a process that opens all chunks after one, and waits until it is done. swept is the cost at the sweep's end.
func (m *muster) openAll(ctx context.Context, after int64, swept cost) (p phase, err error) {
	p.began = cost{postgres: swept.postgres, wal: swept.wal} // the process of the sweep is another one
	opener, err := m.serve(ctx, "open", m.env, "--role", "dispatch")
	if err != nil {
		return p, err
	}
	defer opener.stop()
	if err := awaited(ctx, opener, "opened", func() (bool, error) {
		var left bool
		err := m.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM chunk WHERE opened_at IS NULL)`).Scan(&left)
		return !left, err
	}); err != nil {
		return p, err
	}
	err = m.db.QueryRow(ctx, `SELECT extract(epoch FROM clock_timestamp() - min(opened_at))::float8 FROM chunk WHERE id > $1`, after).Scan(&p.seconds)
	if err != nil {
		return p, err
	}
	p.ended, err = costUntilNow(ctx, m.db, opener.cmd.Process.Pid)
	return p, err
}

// mark is a position in the record: the last ids and the time.
type mark struct {
	chunk, cohort int64
	tick          time.Time
}

func (m *muster) seen(ctx context.Context) (at mark, err error) {
	err = m.db.QueryRow(ctx, `SELECT COALESCE((SELECT max(id) FROM chunk), 0), COALESCE((SELECT max(id) FROM cohort), 0), clock_timestamp()`).Scan(&at.chunk, &at.cohort, &at.tick)
	return at, err
}

// count compares the record with what was due: one tick, handed out, of each schedule that existed in time, and none of later ones.
// Cohorts that were created later were never made due: a tenant that grows gets more shards.
func (m *muster) count(ctx context.Context, workflow string, since mark, due time.Time, f *fired) error {
	var ticks int
	err := m.db.QueryRow(ctx, `
		WITH fired AS MATERIALIZED (
			SELECT schedule_id, count(*) AS ticks, count(*) FILTER (WHERE state <> 1) AS skipped
			FROM tick
			WHERE fired_at > $2
			GROUP BY schedule_id
		)
		SELECT COALESCE(sum(f.ticks), 0), count(f.schedule_id), COALESCE(sum(f.skipped), 0),
			count(*) FILTER (WHERE m.from_at <= $3 AND f.schedule_id IS NULL), count(*) FILTER (WHERE m.from_at > $3 AND f.schedule_id IS NOT NULL)
		FROM (SELECT m.* FROM cohort c JOIN member m ON m.cohort_id = c.id AND m.tenant_id = c.tenant_id WHERE c.workflow = $1 AND c.id <= $4) m
		FULL JOIN fired f ON f.schedule_id = m.schedule_id`, workflow, since.tick, due, since.cohort).Scan(&ticks, &f.n, &f.skipped, &f.lost, &f.not)
	f.doubled = ticks - f.n
	f.n += f.lost
	return err
}

// alone starts nothing: the herd has the machine to itself.
func alone() (stop func() (float64, error)) {
	return func() (float64, error) { return 0, nil }
}

// upserting stores besideRate schedules a second, which join the cohorts of a herd, until stop.
func (m *muster) upserting(ctx context.Context, tenant string, spec func(int) carillon.Spec) (stop func() (float64, error)) {
	ctx, cancel := context.WithCancel(ctx)
	began, next, done := time.Now(), m.stored[tenant], make(chan error, 1)
	first := next
	go func() {
		tick := time.NewTicker(time.Second / besideRequests)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-tick.C:
			}
			if err := m.add(context.WithoutCancel(ctx), tenant, tenant, next, next+besideRate/besideRequests, spec); err != nil {
				done <- err
				return
			}
			next += besideRate / besideRequests
		}
	}()
	return sync.OnceValues(func() (float64, error) {
		cancel()
		err := <-done
		return float64(next-first) / time.Since(began).Seconds(), err
	})
}

// awaited waits until yes returns true, which it calls every few milliseconds.
func awaited(ctx context.Context, s *served, what string, yes func() (bool, error)) error {
	var failed error
	did, err := s.await(ctx, herdWithin, func() bool {
		is, err := yes()
		failed = err
		return is || err != nil
	})
	switch {
	case failed != nil:
		return failed
	case err == nil && !did:
		return fmt.Errorf("not all is %s after %s: %w", what, herdWithin, errTooSlow)
	}
	return err
}
