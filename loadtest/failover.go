package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres/embedded"
)

const (
	failCalm      = 10 * time.Second // before the primary fails
	failAfter     = 40 * time.Second // of ticks after that
	failNoticed   = 100 * time.Millisecond
	failBack      = 12 * time.Second // from the promotion to the return of the old primary
	failSilent    = 8_000            // ms from the promotion to the first tick, if the primary fell silent
	failBroken    = 3_000            // the same, if its connections broke
	failPunctual  = 10_000           // ms from the promotion until no tick is overdue
	failPutEvery  = 50 * time.Millisecond
	failPutWithin = 2 * time.Second
)

// failure is a way in which a primary goes away, and comes back.
type failure struct {
	name  string
	first float64 // ms, until the first tick
	fail  func(*embedded.Server) error
	back  func(context.Context, *embedded.Server) error
}

var failures = []failure{
	{"stopped", failBroken, func(s *embedded.Server) error { return syscall.Kill(s.Pid(), syscall.SIGINT) }, restartOld},
	{"killed", failBroken, func(s *embedded.Server) error { return s.Signal(syscall.SIGKILL) }, restartOld},
	{"silent", failSilent, func(s *embedded.Server) error { return s.Signal(syscall.SIGSTOP) }, func(_ context.Context, s *embedded.Server) error {
		return s.Signal(syscall.SIGCONT)
	}},
}

func restartOld(ctx context.Context, s *embedded.Server) error { return s.Restart(ctx) }

// failedOver pushes ticks at a steady rate while the primary of two servers fails in each of three ways, its synchronous standby is
// promoted, and the old primary comes back beside it.
func failedOver(ctx context.Context, o options, p *progress) (*report, error) {
	if o.databaseURL != "" {
		return nil, errors.New("failover breaks its PostgreSQL, so it starts its own: leave --database-url out")
	}
	all := &report{}
	for _, f := range failures {
		one, err := f.run(ctx, o, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		all.add(f.name, one)
	}
	return all, nil
}

// add adds the figures and promises of another report, with a prefix.
func (r *report) add(prefix string, other *report) {
	for _, f := range other.figures {
		r.figures = append(r.figures, figure{prefix + "_" + f.name, f.value})
	}
	for _, one := range other.promises {
		one.Name = prefix + "_" + one.Name
		r.promises = append(r.promises, one)
	}
}

// servers are a primary and its synchronous standby.
type servers struct{ primary, standby *embedded.Server }

// openServers starts both with a database. close ends them.
func openServers(ctx context.Context, dir string) (s servers, database string, err error) {
	defer func() {
		if err != nil {
			s.close(ctx)
		}
	}()
	if s.primary, err = embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "one")}); err != nil {
		return s, "", err
	}
	given, err := s.primary.Create(ctx, "carillon")
	if err != nil {
		return s, "", err
	}
	if s.standby, err = embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "two"), Standby: s.primary}); err != nil {
		return s, "", err
	}
	if err := s.synchronous(ctx); err != nil {
		return s, "", err
	}
	u, err := url.Parse(given)
	if err != nil {
		return s, "", err
	}
	u.Host += "," + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.standby.Port()))
	return s, u.String(), nil
}

// synchronous makes the primary wait for its standby before it acknowledges, and waits until the standby has caught up. The standby was
// copied before that, so it waits for no standby after its promotion.
func (s servers) synchronous(ctx context.Context) error {
	db, err := pgx.Connect(ctx, s.primary.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '"` + s.standby.Name() + `"'`, `SELECT pg_reload_conf()`} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for synchronous := false; !synchronous; {
		if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')`).Scan(&synchronous); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// close ends the servers.
func (s servers) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, one := range []*embedded.Server{s.standby, s.primary} {
		if one != nil {
			_ = one.Signal(syscall.SIGCONT) // it may be stopped, or have ended
			_ = one.Stop(ctx)
		}
	}
}

func (f failure) run(ctx context.Context, o options, p *progress) (*report, error) {
	w := &workshop{}
	var err error
	if w.dir, err = openFolder(); err != nil {
		return nil, err
	}
	defer w.close()
	s, database, err := openServers(ctx, w.dir)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	o.databaseURL = database
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error { return d.failOver(ctx, f, s) })
}

// failOver pushes ticks while the primary fails.
func (d *deliveries) failOver(ctx context.Context, f failure, s servers) error {
	got := newReceived()
	stop, err := d.serve(ctx, lateWorkflow, 1, got)
	if err != nil {
		return err
	}
	defer stop()
	length := failCalm + failAfter
	from := time.Now().Truncate(time.Second).Add(20 * time.Second)
	to := from.Add(length)
	if err := d.steady(ctx, lateRate, from, to); err != nil {
		return err
	}
	puts := d.putOn(ctx)
	defer puts.stop()
	if err := d.sleep(ctx, time.Until(from.Add(failCalm))); err != nil {
		return err
	}
	d.say("%d ticks were received; the primary is %s", got.count(), f.name)
	failed := time.Now()
	if err := f.fail(s.primary); err != nil {
		return err
	}
	if err := d.sleep(ctx, failNoticed); err != nil {
		return err
	}
	if err := s.standby.Promote(ctx); err != nil {
		return err
	}
	promoted := time.Now()
	d.say("the standby is promoted after %.1f s", promoted.Sub(failed).Seconds())
	if err := d.sleep(ctx, time.Until(promoted.Add(failBack))); err != nil {
		return err
	}
	if err := f.back(ctx, s.primary); err != nil {
		return err
	}
	d.say("%d ticks were received; the old primary is back", got.count())
	want := int(length/time.Second) * lateRate
	if _, err := d.server.await(ctx, time.Until(to)+time.Minute, func() bool { return got.count() >= want }); err != nil {
		return err
	}
	puts.stop()
	db, err := pgx.Connect(ctx, s.standby.URL("carillon"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	d.report.figure("promoted_ms", milliseconds(promoted.Sub(failed)))
	d.report.figure("puts_acknowledged", float64(len(puts.acknowledged)))
	d.report.atMost("first_tick_ms", milliseconds(got.first(failed).Sub(promoted)), f.first)
	d.report.atMost("punctual_ms", max(0, milliseconds(got.lastOverdue(failed).Sub(promoted))), failPunctual)
	return d.kept(ctx, db, got, puts, want)
}

func (d *deliveries) sleep(ctx context.Context, long time.Duration) error {
	_, err := d.server.await(ctx, long, func() bool { return false })
	return err
}

// kept compares the received ticks and the acknowledged schedules with the record of the new primary.
func (d *deliveries) kept(ctx context.Context, db *pgx.Conn, got *received, puts *puts, want int) error {
	var ticks, doubled, stored, early int
	if err := db.QueryRow(ctx, `
		SELECT count(*), count(*) - count(DISTINCT (schedule_id, nominal_at)), count(*) FILTER (WHERE fired_at < nominal_at)
		FROM tick`).Scan(&ticks, &doubled, &early); err != nil {
		return err
	}
	if err := db.QueryRow(ctx, `
		SELECT count(*)
		FROM unnest($1::text[]) AS k (key)
		JOIN schedule s ON s.workflow = $2 AND s.key = k.key`, puts.acknowledged, putWorkflow).Scan(&stored); err != nil {
		return err
	}
	d.report.figure("ticks", float64(ticks))
	d.report.figure("requests", float64(got.requests))
	d.report.atMost("lost", float64(want-got.count()), 0)
	d.report.atMost("unrecorded", float64(got.count()-ticks), 0)
	d.report.atMost("doubled", float64(doubled+got.doubled()), 0)
	d.report.atMost("early", float64(early+got.early()), 0)
	d.report.atMost("acknowledged_puts_lost", float64(len(puts.acknowledged)-stored), 0)
	return nil
}
