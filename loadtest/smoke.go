package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/loadtest/chaos"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	smokeSchedules  = 10_000
	pushed          = "smoke-pushed"
	leased          = "smoke-leased"
	intervalEvery   = 10 * time.Second
	intervalsFor    = 25 * time.Second
	drainWithin     = 2 * time.Minute
	acknowledgement = 3 * time.Second // from a handler's result to the database
)

// smoke puts 10,000 schedules over HTTP. Most are crons, each in one of 12 zones, that all name one minute; the others are
// intervals that go on after it. Half are pushed, half leased. The server is killed while it delivers, and started again.
func smoke(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	w, err := openWorkshop(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer w.close()
	k := &killed{}
	at, err := k.start(ctx, w, o)
	if err != nil {
		return nil, err
	}
	defer func() { k.server.stop() }()
	p.say("carillon dev serves at %s", at.URL)
	client, err := carillon.New(carillon.Config{URL: at.URL, Token: at.Token})
	if err != nil {
		return nil, err
	}
	defer client.Close()

	plan, rate, err := putSmoke(ctx, client, o.scaled(smokeSchedules), p)
	if err != nil {
		return nil, err
	}
	total := planTicks(plan)
	l := newLedger(p.steps(total, "ticks delivered"))
	stop, err := receiveSmoke(ctx, client, l)
	if err != nil {
		return nil, err
	}
	defer stop()

	target := plan[0].nominal[0]
	if time.Until(target) < 0 {
		return nil, fmt.Errorf("the schedules were stored only after they were due: %w", errTooSlow)
	}
	p.say("all are due from %s on", stamp(target))
	if _, err := k.server.await(ctx, time.Until(target)+drainWithin, func() bool { return l.filled() >= total/3 }); err != nil {
		return nil, err
	}
	k.kill(l, total, p)
	if err := k.restart(ctx, w, o, p); err != nil {
		return nil, err
	}
	if _, err := k.server.await(ctx, drainWithin, func() bool { return l.filled() >= total }); err != nil {
		return nil, err
	}
	took := time.Since(target)
	p.say("%d of %d delivered", l.filled(), total)
	f, err := check(ctx, client, plan, l, span{k.at.Add(-acknowledgement), k.ready.Add(acknowledgement)}, p.steps(len(plan), "histories checked"))
	if err != nil {
		return nil, err
	}
	r := k.report(f, len(plan), total, took, rate)
	f.promise(r, p, k.server)
	return r, nil
}

// killed is a server that is killed while it delivers, and restarted.
type killed struct {
	server    *process // the running one
	listen    string   // its address, also after a restart
	at, ready time.Time
	before    int // deliveries before the kill
}

// start starts the server.
func (k *killed) start(ctx context.Context, w *workshop, o options) (at announcement, err error) {
	if k.listen, err = chaos.FreeAddress(); err != nil {
		return at, err
	}
	k.server, at, err = w.dev(ctx, o, k.listen)
	return at, err
}

// kill kills the server with -9.
func (k *killed) kill(l *ledger, total int, p *progress) {
	k.at, k.before = time.Now(), l.filled()
	k.server.kill()
	p.say("killed after %d of %d deliveries", k.before, total)
}

// restart starts the server again, at the address that its clients know.
func (k *killed) restart(ctx context.Context, w *workshop, o options, p *progress) error {
	again, _, err := w.dev(ctx, o, k.listen)
	if err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	k.server, k.ready = again, time.Now()
	p.say("restarted in %.1f s", k.ready.Sub(k.at).Seconds())
	return nil
}

// receiveSmoke registers an endpoint for the pushed ticks and starts workers for the leased ones. stop ends both.
func receiveSmoke(ctx context.Context, c *carillon.Client, l *ledger) (stop func(), err error) {
	hook, err := openEndpoint(ctx, c, "smoke", l)
	if err != nil {
		return nil, err
	}
	if _, err := c.Workflows.Put(ctx, pushed, carillon.WorkflowParams{Endpoint: "smoke"}); err != nil {
		hook.close()
		return nil, err
	}
	pullers := startWorkers(ctx, c, l, leased)
	return func() { pullers.stop(); hook.close() }, nil
}

// report returns how late the deliveries were, and what the kill did to them. total ticks were due, and delivered in took.
func (k *killed) report(f *findings, schedules, total int, took time.Duration, rate float64) *report {
	r := &report{}
	r.figure("schedules", float64(schedules))
	r.figure("ticks", float64(len(f.fired)))
	r.figure("seconds", took.Seconds())
	r.figure("upserts_per_second", rate)
	r.figure("delivered_before_kill", float64(k.before))
	r.figure("restart_seconds", k.ready.Sub(k.at).Seconds())
	untouched := func(t lateness) bool { return t.nominal.Add(t.late).Before(k.at) }
	f.lateness(r, "lateness", f.fired, every)
	f.lateness(r, "lateness_before_kill", f.fired, untouched)
	f.lateness(r, "delivery", f.delivered, every)
	r.figure("recovered_seconds", f.recovered(k.at).Seconds())
	f.repeated(r, k.at)
	r.atMost("kills_outside_the_delivery", missedTheMiddle(k.before, total), 0)
	return r
}

// missedTheMiddle returns 1 if the kill came before or after all deliveries, and so showed nothing.
func missedTheMiddle(delivered, total int) float64 {
	if delivered == 0 || delivered >= total {
		return 1
	}
	return 0
}

// putSmoke stores n schedules that are due from one minute on, and returns how many it stored a second. It chooses the minute by the
// server's clock and by the time that the first of them take.
func putSmoke(ctx context.Context, c *carillon.Client, n int, p *progress) ([]*planned, float64, error) {
	for _, workflow := range []string{pushed, leased} {
		if _, err := c.Workflows.Put(ctx, workflow, carillon.WorkflowParams{}); err != nil {
			return nil, 0, err
		}
	}
	first, err := smokePlan(max(1, n/20), time.Now().Truncate(time.Minute).Add(30*time.Minute))
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	now, err := putAll(ctx, c, first, func() {})
	if err != nil {
		return nil, 0, err
	}
	expected := time.Duration(float64(time.Since(began)) * float64(n) / float64(len(first)))
	target := now.Add(2*expected + 3*time.Second).Truncate(time.Minute).Add(time.Minute)

	plan, err := smokePlan(n, target)
	if err != nil {
		return nil, 0, err
	}
	began = time.Now()
	_, err = putAll(ctx, c, plan, p.steps(n, "schedules put"))
	return plan, float64(n) / time.Since(began).Seconds(), err
}

// smokePlan returns n schedules and their ticks from the target on, which is a whole minute.
func smokePlan(n int, target time.Time) ([]*planned, error) {
	list, err := zones()
	if err != nil {
		return nil, err
	}
	target = target.UTC()
	type timed struct {
		rule
		later []time.Time
	}
	rules := make([][]timed, len(list))
	for i, zone := range list {
		for _, r := range cronRules(target, zone) {
			rules[i] = append(rules[i], timed{r, r.next(zone, target, shown)})
		}
	}
	plan := make([]*planned, n)
	for i := range plan {
		place := i / 2 % len(list)
		s := &planned{workflow: pushed, key: fmt.Sprintf("user_%05d", i), zone: list[place], payload: payloadOf(i)}
		if i%2 == 1 {
			s.workflow = leased
		}
		s.params.Spec.Timezone = s.zone.String()
		if i%10 >= 8 {
			from := target.Add(time.Duration(i/10%10) * time.Second)
			s.everyFrom(intervalEvery, from, target.Add(intervalsFor))
		} else {
			r := rules[place][i%3]
			s.params.Spec.Cron = carillon.Strings{r.cron}
			s.nominal, s.later = []time.Time{target}, r.later
		}
		plan[i] = s
	}
	return plan, nil
}

// lateness notes the median and the 99th percentile of the ticks for which want returns true.
func (f *findings) lateness(r *report, name string, list []lateness, want func(lateness) bool) {
	picked := late(list, want)
	r.figure(name+"_p50_ms", milliseconds(percentile(picked, 0.5)))
	r.figure(name+"_p99_ms", milliseconds(percentile(picked, 0.99)))
}

// repeated notes how many ticks were delivered twice, and how long before the kill the oldest of them was delivered first. By
// that much the record lags behind the deliveries.
func (f *findings) repeated(r *report, killed time.Time) {
	var pushes int
	var behind time.Duration
	for _, d := range f.duplicates {
		if d.workflow == pushed {
			pushes++
		}
		behind = max(behind, killed.Sub(d.first))
	}
	r.figure("duplicates", float64(len(f.duplicates)))
	r.figure("duplicates_pushed", float64(pushes))
	r.figure("record_behind_ms", milliseconds(behind))
}

// recovered returns how long after the kill the last tick that was due before it was delivered.
func (f *findings) recovered(killed time.Time) (longest time.Duration) {
	for _, t := range f.delivered {
		if t.nominal.Before(killed) {
			longest = max(longest, t.nominal.Add(t.late).Sub(killed))
		}
	}
	return longest
}
