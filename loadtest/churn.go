package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	churnSchedules = 20_000
	churnShare     = 5 // one schedule in five is changed while it fires
	churnClients   = 32
	churnRate      = 400 // changes a second, at full scale
	churnFew       = 16  // at any scale
	churnFor       = time.Minute
	churnLeast     = 35 * time.Second
	churnCalm      = 12 * time.Second // no changes so shortly before the end: a schedule that never fires again is refused
	churnSettle    = 2 * time.Minute
	churnWorkflow  = "churn"
	churnNear      = 100 * time.Millisecond // changes are made so close to a whole second, when ticks are due
)

// churn changes a fifth of the schedules while they fire, most often just when one of their ticks is due. It upserts them with
// another payload or timing, pauses, resumes, deletes and creates them again. Then it compares the record with what those changes
// allow.
func churn(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	b, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.unlimited(ctx, churnWorkflow); err != nil {
		return nil, err
	}
	server, err := b.serve(ctx, "churn", b.env)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	at, err := b.announce(server, churnWorkflow)
	if err != nil {
		return nil, err
	}
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	client, err := carillon.New(carillon.Config{URL: at.URL, Token: at.Token, HTTPClient: httpClient(transport)})
	if err != nil {
		return nil, err
	}
	defer client.Close()

	n := o.scaled(churnSchedules)
	from := time.Now().Add(10*time.Second + time.Duration(n)*time.Second/1_000).Truncate(time.Second)
	to := from.Add(max(churnLeast, time.Duration(float64(churnFor)*min(1, o.scale))).Truncate(time.Second))
	c := &churning{client: client, from: from, to: to, all: make([]*churned, n)}
	if err := c.put(ctx, b, server); err != nil {
		return nil, err
	}
	if err := analyzed(ctx, b.db); err != nil {
		return nil, err
	}
	if time.Until(to) < 2*churnCalm { // the ticks due meanwhile are uncertain for some schedules, and perhaps for all
		return nil, fmt.Errorf("the schedules were stored only after they were due: %w", errTooSlow)
	}
	p.say("%d schedules stored, which fire for %s", n, to.Sub(from))
	if err := c.changeAndSettle(ctx, b.db, server, max(churnFew, int(float64(churnRate)*min(1, o.scale))), p); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, server.tail())
	}
	records, err := c.records(ctx, b.db)
	if err != nil {
		return nil, err
	}
	f := checkChurn(c.all, from, to, records, c.seen())
	r := c.report(records)
	f.lateness(r, "lateness", f.fired, every)
	f.promiseOf(churnKinds, r, p, server.process)
	return r, nil
}

// churning is a run of churn.
type churning struct {
	client   *carillon.Client
	from, to time.Time // nominal times are in [from, to]
	all      []*churned

	mu   sync.Mutex
	came map[string]int // how often each tick was delivered, by its id
}

// cadences are the timings that schedules change to. Schedules that are not changed fire less often.
var cadences = []cadence{{3, 0}, {3, 1}, {4, 2}, {5, 3}, {7, 4}}

func (c *churning) params(of *churned, t cadence, version int) carillon.Params {
	p := carillon.Params{Payload: payloadFor(of.number, version)}
	p.Spec = carillon.Spec{
		Intervals: []carillon.Interval{{Every: fmt.Sprintf("%ds", t.every), Offset: fmt.Sprintf("%ds", t.offset)}},
		StartAt:   c.from.UTC().Format(time.RFC3339), EndAt: c.to.UTC().Format(time.RFC3339),
	}
	p.Policy = carillon.Policy{Overlap: "allow_all", Missed: of.missed}
	return p
}

// report returns what was changed and what became of the ticks.
func (c *churning) report(records []churnTick) *report {
	r := &report{}
	r.figure("schedules", float64(len(c.all)))
	r.figure("ticks", float64(len(records)))
	r.figure("changes_per_second", float64(c.changes())/(c.to.Sub(c.from)-churnCalm).Seconds())
	kinds, became := c.kinds(), outcomes(records)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r.figure(kind, float64(kinds[kind]))
	}
	for _, what := range slices.Sorted(maps.Keys(became)) {
		r.figure("ticks_"+what, float64(became[what]))
	}
	return r
}

// put stores all schedules with their first definitions.
func (c *churning) put(ctx context.Context, b *bench, server *served) error {
	began := time.Now()
	err := b.put(ctx, server, churnWorkflow, len(c.all), func(yield func(carillon.BulkLine) bool) {
		for i := range c.all {
			s := &churned{number: i, key: fmt.Sprintf("user_%06d", i), missed: []string{"all", "last"}[i/churnShare%2]}
			t := cadence{20, i % 20}
			if i%churnShare == 0 {
				t = cadences[i/churnShare%len(cadences)]
			}
			s.made(began, t)
			c.all[i] = s
			line := carillon.BulkLine{Workflow: churnWorkflow, Key: s.key, Params: c.params(s, t, 0)}
			if !yield(line) {
				return
			}
		}
	})
	for _, s := range c.all {
		s.changes[0].ended = time.Now()
	}
	return err
}

// changeAndSettle changes schedules while a worker completes their ticks, and waits until all ticks have ended.
func (c *churning) changeAndSettle(ctx context.Context, db *pgx.Conn, server *served, perSecond int, p *progress) error {
	stop := c.work(ctx)
	defer stop()
	if err := c.change(ctx, perSecond); err != nil {
		return err
	}
	p.say("%d changes made", c.changes())
	return c.settled(ctx, db, server)
}

// work completes every tick and counts how often each is delivered, until stop.
func (c *churning) work(ctx context.Context) (stop func()) {
	c.came = map[string]int{}
	ctx, cancel := context.WithCancel(ctx)
	worker := carillon.NewWorker(c.client, carillon.WorkerConfig{
		Name: "loadtest", Concurrency: 1000, Wait: 5 * time.Second, ShutdownTimeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	carillon.Handle[json.RawMessage](worker, churnWorkflow, func(_ context.Context, t carillon.Tick[json.RawMessage]) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.came[t.TickID]++
		return nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = worker.Run(ctx) // the record shows the ticks that it did not complete
	}()
	return func() {
		cancel()
		<-done
	}
}

// seen returns how many ticks were delivered, and how many deliveries were repeats.
func (c *churning) seen() (s deliverySum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.came {
		s.ticks++
		s.again += n - 1
	}
	return s
}

// change changes perSecond schedules a second until shortly before the end. Each client has schedules of its own, and changes them
// around whole seconds.
func (c *churning) change(ctx context.Context, perSecond int) error {
	clients := min(churnClients, (len(c.all)+churnShare-1)/churnShare)
	mine := make([][]*churned, clients)
	for i, s := range c.all {
		if i%churnShare == 0 {
			client := i / churnShare % clients
			mine[client] = append(mine[client], s)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for client, some := range mine {
		atOnce := (perSecond + client) / clients // a second, of this client
		group.Go(func() error {
			for second := c.from; second.Before(c.to.Add(-churnCalm)); second = second.Add(time.Second) {
				begin := second.Add(-churnNear + rand.N(2*churnNear))
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(begin)):
				}
				for range atOnce {
					if time.Until(c.to) < churnCalm {
						return nil
					}
					s := some[rand.IntN(len(some))]
					if err := c.changeOne(ctx, s); err != nil {
						return fmt.Errorf("%s of %s: %w", s.changes[len(s.changes)-1].kind, s.key, err)
					}
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// changeOne makes a random change that the present state of a schedule allows.
func (c *churning) changeOne(ctx context.Context, s *churned) error {
	before := s.changes[len(s.changes)-1]
	kinds := []string{upserted, retimed, paused, deleted}
	switch {
	case before.gone:
		kinds = []string{created}
	case !before.active:
		kinds = []string{upserted, retimed, resumed, resumed, deleted}
	}
	now := s.next(kinds[rand.IntN(len(kinds))])
	if now.kind == retimed || now.kind == created {
		now.cadence = cadences[rand.IntN(len(cadences))]
	}
	var stored carillon.Schedule
	var err error
	now.began = time.Now()
	s.changes = append(s.changes, now)
	switch now.kind {
	case upserted, retimed, created:
		stored, err = c.client.Schedules.Put(ctx, churnWorkflow, s.key, c.params(s, now.cadence, len(s.changes)))
	case paused:
		stored, err = c.client.Schedules.Pause(ctx, churnWorkflow, s.key, carillon.PauseParams{})
	case resumed:
		stored, err = c.client.Schedules.Resume(ctx, churnWorkflow, s.key, carillon.ResumeParams{})
	case deleted:
		err = c.client.Schedules.Delete(ctx, churnWorkflow, s.key, carillon.DeleteParams{})
	}
	last := &s.changes[len(s.changes)-1]
	last.ended, last.version = time.Now(), stored.Version
	return err
}

func (c *churning) changes() (n int) {
	for _, s := range c.all {
		n += len(s.changes) - 1
	}
	return n
}

func (c *churning) kinds() map[string]int {
	n := map[string]int{}
	for _, s := range c.all {
		for _, one := range s.changes[1:] {
			n[one.kind]++
		}
	}
	return n
}

// settled waits until all due ticks have ended.
func (c *churning) settled(ctx context.Context, db *pgx.Conn, server *served) error {
	if _, err := server.await(ctx, time.Until(c.to)+churnSettle, func() bool { return time.Now().After(c.to.Add(2 * time.Second)) }); err != nil {
		return err
	}
	over := time.Now().Add(churnSettle)
	for {
		var open int
		err := db.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM chunk WHERE opened_at IS NULL) + (SELECT count(*) FROM tick WHERE state IN (0, 1))
				+ (SELECT count(*) FROM fair_turn) + (SELECT count(*) FROM cohort WHERE due_at <= clock_timestamp())`).Scan(&open)
		if err != nil || open == 0 || time.Now().After(over) {
			return err // the check of the record finds ticks that have not ended by now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// records returns all ticks of the record. Each has the key of its schedule, and the number of that schedule among those of its key.
func (c *churning) records(ctx context.Context, db *pgx.Conn) ([]churnTick, error) {
	rows, _ := db.Query(ctx, `
		SELECT n.key, n.life::int, t.nominal_at, t.seq, t.version, t.missed_count, t.state, t.reason, t.attempt, t.fired_at, t.last_at
		FROM tick t
		LEFT JOIN (
			SELECT id, key, row_number() OVER (PARTITION BY key ORDER BY id) AS life
			FROM (SELECT id, key FROM schedule UNION SELECT schedule_id, key FROM revision) s
		) n ON n.id = t.schedule_id
		ORDER BY n.key, n.life, t.nominal_at, t.seq`) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[churnTick])
}
