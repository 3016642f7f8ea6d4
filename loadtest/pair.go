package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	pairSchedules = 1_000
	pairWorkflows = 8
	pairEvery     = 5 * time.Second
	pairFor       = 30 * time.Second
	pairKillAfter = 10 * time.Second
	takeOver      = 10 * time.Second
)

// pair lets two processes of carillon serve work on one database and kills with -9 the one that sweeps more. No tick may be lost or
// delivered twice, and ticks that are due after the kill must be delivered within ten seconds.
func pair(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	b, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer b.close()
	one, other, stop, err := b.serveTwo(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	p.say("two processes serve, at %s and %s", one.Listen, other.Listen)
	client, err := b.tenant(ctx, b.env, newBalancer(one.Listen, other.Listen))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	// A process opens what it sweeps, and a small tenant uses one shard. With all shards, both processes have work.
	if _, err := b.db.Exec(ctx, `UPDATE tenant SET shards = 64`); err != nil {
		return nil, fmt.Errorf("lay schedules over all shards: %w", err)
	}

	plan, err := putPair(ctx, client, o.scaled(pairSchedules), p)
	if err != nil {
		return nil, err
	}
	total := planTicks(plan)
	l := newLedger(p.steps(total, "ticks delivered"))
	pullers := startWorkers(ctx, client, l, pairWorkflowNames()...)
	defer pullers.stop()
	k, err := killBusier(ctx, one, other, plan[0].nominal[0].Add(pairKillAfter), p)
	if err != nil {
		return nil, err
	}
	if _, err := k.heir.await(ctx, pairFor+drainWithin, func() bool { return l.filled() >= total }); err != nil {
		return nil, err
	}
	p.say("%d of %d delivered", l.filled(), total)
	f, err := check(ctx, client, plan, l, span{k.at.Add(-acknowledgement), k.at.Add(acknowledgement)}, p.steps(len(plan), "histories checked"))
	if err != nil {
		return nil, err
	}
	r := k.report(f, len(plan))
	f.promise(r, p, k.heir.process)
	return r, nil
}

// killing is the kill of one of two processes.
type killing struct {
	at     time.Time
	heir   *served    // the process that goes on
	shares [2]float64 // how many ticks each process had handed out
}

// killBusier kills with -9, at a moment, the process that has swept more.
func killBusier(ctx context.Context, one, other *served, at time.Time, p *progress) (k killing, err error) {
	if _, err := one.await(ctx, time.Until(at)+drainWithin, func() bool { return !time.Now().Before(at) }); err != nil {
		return k, err
	}
	k.shares = [2]float64{one.metric(ctx, handedOutMetric), other.metric(ctx, handedOutMetric)}
	swept := [2]float64{one.metric(ctx, sweptMetric), other.metric(ctx, sweptMetric)}
	victim := one
	k.heir = other
	if swept[1] > swept[0] {
		victim, k.heir = other, one
	}
	k.at = time.Now()
	victim.kill()
	p.say("handed out %v and %v, swept %v and %v; killed the one at %s", k.shares[0], k.shares[1], swept[0], swept[1], victim.Listen)
	return k, nil
}

// report returns how late ticks were before and after the kill, and how long the other process took to take over.
func (k killing) report(f *findings, schedules int) *report {
	after := func(t lateness) bool { return t.nominal.After(k.at) }
	before := func(t lateness) bool { return t.nominal.Add(t.late).Before(k.at) }
	r := &report{}
	r.figure("schedules", float64(schedules))
	r.figure("ticks", float64(len(f.fired)))
	r.figure("handed_out_by_one", k.shares[0])
	r.figure("handed_out_by_other", k.shares[1])
	f.lateness(r, "lateness_before_kill", f.fired, before)
	f.lateness(r, "lateness_after_kill", f.fired, after)
	r.figure("duplicates", float64(len(f.duplicates)))
	r.atMost("idle_processes", idle(k.shares), 0)
	r.atMost("take_over_ms", milliseconds(percentile(late(f.delivered, after), 1)), milliseconds(takeOver))
	// A lease of 10 s may have been granted in an answer that the kill cut off.
	r.atMost("caught_in_the_kill_ms", milliseconds(percentile(late(f.delivered, func(t lateness) bool { return !after(t) }), 1)), milliseconds(2*takeOver))
	return r
}

func randomSeed() []byte {
	seed := make([]byte, 32)
	rand.Read(seed) // it never fails
	return seed
}

// idle counts the processes that handed out nothing.
func idle(shares [2]float64) (n float64) {
	for _, share := range shares {
		if share == 0 {
			n++
		}
	}
	return n
}

func pairWorkflowNames() []string {
	names := make([]string, pairWorkflows)
	for i := range names {
		names[i] = fmt.Sprintf("pair-%d", i)
	}
	return names
}

// putPair stores n schedules that fire every five seconds, a fifth of them in each second.
func putPair(ctx context.Context, c *carillon.Client, n int, p *progress) ([]*planned, error) {
	names := pairWorkflowNames()
	sample := make([]*planned, max(1, n/20))
	for i := range sample {
		far := time.Now().Truncate(time.Second).Add(time.Hour)
		sample[i] = pairSchedule(i, names, far)
	}
	began := time.Now()
	now, err := putAll(ctx, c, sample, func() {})
	if err != nil {
		return nil, err
	}
	expected := time.Since(began) * time.Duration(n) / time.Duration(len(sample))
	start := now.Add(2*expected + 5*time.Second).Truncate(time.Second)
	plan := make([]*planned, n)
	for i := range plan {
		plan[i] = pairSchedule(i, names, start)
	}
	if _, err := putAll(ctx, c, plan, p.steps(n, "schedules put")); err != nil {
		return nil, err
	}
	if time.Until(start) < 0 {
		return nil, errors.Join(errTooSlow, fmt.Errorf("%d schedules were to be stored within %s", n, 2*expected))
	}
	return plan, nil
}

func pairSchedule(i int, names []string, start time.Time) *planned {
	s := &planned{workflow: names[i%len(names)], key: fmt.Sprintf("user_%04d", i), zone: time.UTC, payload: payloadOf(i)}
	s.params.Spec.Timezone = "UTC"
	from := start.UTC().Add(time.Duration(i/len(names)%5) * time.Second)
	s.everyFrom(pairEvery, from, start.Add(pairFor))
	return s
}
