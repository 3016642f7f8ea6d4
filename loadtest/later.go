package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/postgres/shiftedclock"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	laterTriggers = 10_000
	laterEach     = 50 // of one schedule
	laterDays     = 364
	laterWorkflow = "later"
	laterKills    = 8
	laterClients  = 8
	laterSettle   = time.Minute
	laterSlack    = 5 * time.Minute // of the shifted clock, from the end of a day's step to the firing
)

// later puts triggers for later, and then passes a year of the database's clock, day by day. Meanwhile schedules are paused, resumed and
// deleted, subjects change their zones, ticks are cancelled, and processes are killed. Each tick must come once, not before its time, and
// be decided as its schedule is then.
func later(ctx context.Context, o options, p *progress) (_ *report, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	y, err := openYear(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer y.close()
	if err := y.begin(ctx, o.scaled(laterTriggers)); err != nil {
		return nil, err
	}
	step := p.steps(laterDays+1, "days passed")
	for day := range laterDays + 1 {
		if err := y.change(ctx, day); err != nil {
			return nil, fmt.Errorf("day %d: %w", day, err)
		}
		if err := y.pass(ctx); err != nil {
			return nil, fmt.Errorf("day %d: %w", day, err)
		}
		step()
	}
	return y.judge(ctx)
}

// year is a server with a clock that can be put forward, and triggers for later on it.
type year struct {
	*bench
	p       *progress
	pool    *pgxpool.Pool // with the shifted clock
	client  *carillon.Client
	balance *balancer
	serving [2]*served
	killed  int // days until the killed process starts again; 0: both run

	from      time.Time
	now       time.Time
	reminders []*reminder
	schedules []*laterSchedule
	kills     int
}

// laterSchedule is a schedule, and what happens to it on which days; -1: it does not.
type laterSchedule struct {
	key                           string
	pause, resume, deletion, zone int
}

// reminder is a trigger for later.
type reminder struct {
	of     *laterSchedule
	id     string
	at     time.Time
	cancel int // the day on which it is cancelled; -1: it is not
}

func openYear(ctx context.Context, o options, p *progress) (_ *year, err error) {
	y := &year{p: p}
	if y.bench, err = openBench(ctx, o, p); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			y.close()
		}
	}()
	if err := shiftedclock.Install(ctx, y.db); err != nil {
		return nil, err
	}
	url, err := shiftedclock.URL(y.url)
	if err != nil {
		return nil, err
	}
	y.env[0] = "DATABASE_URL=" + url
	if y.pool, err = pgxpool.New(ctx, url); err != nil {
		return nil, err
	}
	y.ends = append(y.ends, y.pool.Close)
	for i := range y.serving {
		if err := y.start(ctx, i); err != nil {
			return nil, err
		}
	}
	y.ends = append(y.ends, func() {
		for _, s := range y.serving {
			s.stop()
		}
	})
	y.balance = newBalancer(y.serving[0].Listen, y.serving[1].Listen)
	if y.client, err = y.tenant(ctx, y.env, y.balance); err != nil {
		return nil, err
	}
	y.ends = append(y.ends, y.client.Close)
	return y, y.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&y.from)
}

// start starts a process, at the address of the one before it if there was one.
func (y *year) start(ctx context.Context, i int) (err error) {
	was := y.serving[i]
	if y.serving[i], err = y.serve(ctx, fmt.Sprint("process-", i), append(y.env, "CARILLON_CONNECTIONS=20")); err != nil {
		return err
	}
	if was != nil {
		for n, target := range y.balance.targets {
			if target == was.Listen {
				y.balance.targets[n] = y.serving[i].Listen
			}
		}
	}
	return nil
}

// begin stores the schedules with their triggers.
func (y *year) begin(ctx context.Context, n int) error {
	random := rand.New(rand.NewPCG(71, 17))
	y.now = y.from
	chance := func(of float64, upto int) int {
		if random.Float64() >= of {
			return -1
		}
		return 1 + random.IntN(upto)
	}
	for i := range (n + laterEach - 1) / laterEach {
		s := &laterSchedule{key: fmt.Sprint("user_", i), pause: chance(0.3, laterDays-60), deletion: chance(0.1, laterDays), zone: chance(0.3, laterDays), resume: -1}
		if s.pause > 0 {
			s.resume = s.pause + 1 + random.IntN(50)
		}
		y.schedules = append(y.schedules, s)
		for at := range laterEach {
			if len(y.reminders) < n {
				r := &reminder{of: s, cancel: -1}
				r.at = y.from.Truncate(time.Second).Add(time.Hour + time.Duration(at)*time.Second + time.Duration(random.Int64N(laterDays*24*60-120))*time.Minute)
				if due := int(r.at.Sub(y.from) / (24 * time.Hour)); due > 1 && random.Float64() < 0.03 {
					r.cancel = 1 + random.IntN(due-1)
				}
				y.reminders = append(y.reminders, r)
			}
		}
	}
	never := y.from.AddDate(2, 0, 0).UTC().Format(time.RFC3339) // no schedule fires by its spec in the year: the run counts triggers alone
	y.p.say("%d triggers of %d schedules", len(y.reminders), len(y.schedules))
	err := y.each(ctx, len(y.schedules), func(ctx context.Context, i int) error {
		key := y.schedules[i].key
		if _, err := y.client.Subjects.Put(ctx, key, carillon.SubjectParams{Timezone: "Europe/Berlin"}); err != nil {
			return err
		}
		params := carillon.Params{Spec: carillon.Spec{Timezone: "@subject", Cron: carillon.Strings{"0 12 29 2 *"}, StartAt: never}}
		params.Policy.Overlap, params.Policy.MaxLateness = "allow_all", "1w"
		_, err := y.client.Schedules.Put(ctx, laterWorkflow, key, params)
		return err
	})
	if err != nil {
		return err
	}
	return y.each(ctx, len(y.reminders), func(ctx context.Context, i int) error {
		r := y.reminders[i]
		made, err := y.client.Schedules.Trigger(ctx, laterWorkflow, r.of.key, carillon.TriggerParams{At: r.at.Format(time.RFC3339)})
		r.id = made.TickID
		return err
	})
}

// each calls fn with 0 to n-1, several at a time.
func (y *year) each(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(laterClients)
	for i := range n {
		group.Go(func() error { return fn(ctx, i) })
	}
	return group.Wait()
}

// change does what happens at the beginning of a day.
func (y *year) change(ctx context.Context, day int) error {
	if day == 0 {
		return nil
	}
	if err := y.killAndStart(ctx, day); err != nil {
		return err
	}
	for _, s := range y.schedules {
		if s.deletion > 0 && day > s.deletion {
			continue
		}
		var err error
		switch day {
		case s.pause:
			_, err = y.client.Schedules.Pause(ctx, laterWorkflow, s.key, carillon.PauseParams{})
		case s.resume:
			_, err = y.client.Schedules.Resume(ctx, laterWorkflow, s.key, carillon.ResumeParams{})
		}
		if err == nil && day == s.zone {
			_, err = y.client.Subjects.Put(ctx, s.key, carillon.SubjectParams{Timezone: "Asia/Kathmandu"})
		}
		if err == nil && day == s.deletion {
			err = y.client.Schedules.Delete(ctx, laterWorkflow, s.key, carillon.DeleteParams{})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
	}
	for _, r := range y.reminders {
		if r.cancel == day && (r.of.deletion < 0 || day < r.of.deletion) {
			if _, err := y.client.Ticks.Cancel(ctx, r.id); err != nil {
				return fmt.Errorf("cancel %s: %w", r.id, err)
			}
		}
	}
	return nil
}

// killAndStart kills a process on some days, and starts it again the day after.
func (y *year) killAndStart(ctx context.Context, day int) error {
	if y.killed > 0 {
		y.killed--
		return y.start(ctx, y.kills%2)
	}
	if day%(laterDays/(laterKills+1)) == 0 && y.kills < laterKills {
		y.kills++
		y.serving[y.kills%2].kill()
		y.killed = 1
	}
	return nil
}

// pass puts the clock forward by a day, and waits until all that is due is decided.
func (y *year) pass(ctx context.Context) error {
	y.now = y.now.Add(24 * time.Hour)
	var shown time.Time
	if err := y.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&shown); err != nil {
		return err
	}
	if err := shiftedclock.Forward(ctx, y.pool, y.now.Sub(shown)); err != nil {
		return err
	}
	deadline := time.Now().Add(laterSettle)
	for {
		due, err := shiftedclock.Due(ctx, y.pool)
		if err != nil || !due {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("at %s something is due and is not decided: %s", y.now, shiftedclock.Waiting(ctx, y.pool))
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// want returns the state that a tick must have at the end.
func (r *reminder) want(from time.Time) string {
	due := int(r.at.Sub(from) / (24 * time.Hour)) // it is due between this day's change and the next day's
	s := r.of
	switch {
	case r.cancel > 0 && (s.deletion < 0 || r.cancel < s.deletion):
		return "cancelled"
	case s.deletion > 0 && due >= s.deletion:
		return "cancelled"
	case s.pause > 0 && due >= s.pause && due < s.resume:
		return "skipped"
	}
	return "running" // no worker leases it
}

// judge reads each tick, and compares it with what must have become of it.
func (y *year) judge(ctx context.Context) (*report, error) {
	var mu sync.Mutex
	wrong, early, late, states := 0, 0, 0, map[string]int{}
	err := y.each(ctx, len(y.reminders), func(ctx context.Context, i int) error {
		r := y.reminders[i]
		got, err := y.client.Ticks.Get(ctx, r.id)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		states[got.State]++
		if want := r.want(y.from); got.State != want || !got.Timestamp.Equal(r.at) {
			wrong++
			y.p.say("%s of %s at %s is %s at %s, and not %s", r.id, r.of.key, r.at, got.State, got.Timestamp, want)
		}
		step := y.from.Add((r.at.Sub(y.from)/(24*time.Hour) + 1) * 24 * time.Hour)
		if got.State == "running" || got.State == "skipped" {
			if got.FiredAt.Before(r.at) {
				early++
			}
			if got.FiredAt.After(step.Add(laterSlack)) {
				late++
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var ticks, handed int
	if err := y.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM tick), (SELECT COALESCE(sum(ticks - taken), 0) FROM ready)`).Scan(&ticks, &handed); err != nil {
		return nil, err
	}
	r := &report{}
	r.figure("triggers", float64(len(y.reminders)))
	r.figure("kills", float64(y.kills))
	for _, state := range []string{"running", "skipped", "cancelled"} {
		r.figure(state, float64(states[state]))
	}
	r.atMost("wrong", float64(wrong), 0)
	r.atMost("early", float64(early), 0)
	r.atMost("late", float64(late), 0)
	r.atMost("more_or_fewer_ticks", float64(max(ticks-len(y.reminders), len(y.reminders)-ticks)), 0)
	r.atMost("more_or_fewer_handed_out", float64(max(handed-states["running"], states["running"]-handed)), 0)
	return r, nil
}
