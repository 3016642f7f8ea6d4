package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	rateHerd     = 200_000 // schedules
	ratePerSec   = 2_000
	rateBeside   = 50 // schedules of each second workflow, each due each second
	rateWindow   = 10 * time.Second
	rateOff      = 2 // percent
	rateLate     = 1000
	rateWorkflow = "herd"
)

// rated makes a herd due at once whose workflow has a rate, over two processes, and kills one of them in the middle. A second workflow of
// the tenant, and a second tenant, fire each second meanwhile.
func rated(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
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
	l := rateLoad{bench: b, progress: p, herd: o.scaled(rateHerd), perSecond: o.scaled(ratePerSec)}
	if err := l.store(ctx, one); err != nil {
		return nil, err
	}
	due, err := dueAll(ctx, b.db, rateWorkflow, 5*time.Second, 1)
	if err != nil {
		return nil, err
	}
	length := time.Duration(l.herd) * time.Second / time.Duration(l.perSecond)
	k, err := killBusier(ctx, one, other, due.Add(length/2), p)
	if err != nil {
		return nil, err
	}
	if err := awaited(ctx, k.heir, "handed out", func() (bool, error) {
		var n int
		err := b.db.QueryRow(ctx, `SELECT count(*) FROM tick t JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id WHERE s.workflow = $1`, rateWorkflow).Scan(&n)
		return n >= l.herd, err
	}); err != nil {
		return nil, err
	}
	return l.judge(ctx, k.at)
}

// rateLoad is the load of rated.
type rateLoad struct {
	*bench
	*progress
	herd, perSecond int
}

// store stores the herd with its rate, and the schedules that fire beside it.
func (l rateLoad) store(ctx context.Context, s *served) error {
	for _, name := range []string{"acme", "rival"} {
		if err := l.unlimited(ctx, name); err != nil {
			return err
		}
		if err := l.put(ctx, s, name, rateBeside, l.each("beside", rateBeside, carillon.Spec{Intervals: []carillon.Interval{{Every: "1s"}}})); err != nil {
			return err
		}
	}
	if _, err := l.db.Exec(ctx, `UPDATE tenant SET shards = 64`); err != nil {
		return fmt.Errorf("lay schedules over all shards: %w", err)
	}
	at, err := l.announce(s, "acme")
	if err != nil {
		return err
	}
	client, err := carillon.New(carillon.Config{URL: at.URL, Token: at.Token})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Workflows.Put(ctx, rateWorkflow, carillon.WorkflowParams{Rate: &carillon.Rate{PerSecond: l.perSecond}}); err != nil {
		return err
	}
	if err := l.put(ctx, s, "acme", l.herd, l.each(rateWorkflow, l.herd, daily(0))); err != nil {
		return err
	}
	l.say("%d schedules stored, at a rate of %d a second", l.herd, l.perSecond)
	return analyzed(ctx, l.db)
}

// each returns n schedules of a workflow with one spec.
func (l rateLoad) each(workflow string, n int, spec carillon.Spec) iter.Seq[carillon.BulkLine] {
	return func(yield func(carillon.BulkLine) bool) {
		for i := range n {
			line := carillon.BulkLine{Workflow: workflow, Key: fmt.Sprintf("user_%07d", i)}
			line.Spec, line.Policy.Overlap = spec, "allow_all"
			if !yield(line) {
				return
			}
		}
	}
}

// judge compares the record with the rate.
func (l rateLoad) judge(ctx context.Context, killed time.Time) (*report, error) {
	r := &report{}
	fired, err := l.fired(ctx)
	if err != nil {
		return nil, err
	}
	most, least := 0.0, 0.0
	end := 0
	for i, from := range fired {
		for end < len(fired) && fired[end].Before(from.Add(rateWindow)) {
			end++
		}
		n := float64(end-i) / (rateWindow.Seconds() * float64(l.perSecond))
		most = max(most, n)
		touches := from.Before(killed.Add(rateWindow)) && from.Add(rateWindow).After(killed)
		if whole := end < len(fired); whole && !touches && (least == 0 || n < least) {
			least = n
		}
	}
	r.figure("schedules", float64(l.herd))
	r.figure("rate", float64(l.perSecond))
	r.figure("seconds", fired[len(fired)-1].Sub(fired[0]).Seconds())
	r.atMost("percent_above", 100*(most-1), rateOff)
	r.atMost("percent_below", 100*(1-least), rateOff)
	var distinct, beside int
	var p99, rival float64
	if err := l.db.QueryRow(ctx, `
		SELECT (SELECT count(DISTINCT t.schedule_id) FROM tick t JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id WHERE s.workflow = $1),
			count(*),
			percentile_cont(0.99) WITHIN GROUP (ORDER BY late) FILTER (WHERE name = 'acme'),
			percentile_cont(0.99) WITHIN GROUP (ORDER BY late) FILTER (WHERE name = 'rival')
		FROM (
			SELECT n.name, extract(epoch FROM t.fired_at - t.nominal_at) * 1000 AS late
			FROM tick t
			JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id
			JOIN tenant n ON n.id = t.tenant_id
			WHERE s.workflow = 'beside' AND t.nominal_at >= $2 AND NOT (t.nominal_at BETWEEN $3 AND $4)
		) b`, rateWorkflow, fired[0], killed.Add(-time.Second), killed.Add(rateWindow)).Scan(&distinct, &beside, &p99, &rival); err != nil {
		return nil, err
	}
	r.atMost("lost", float64(l.herd-distinct), 0)
	r.atMost("doubled", float64(len(fired)-distinct), 0)
	r.figure("ticks_beside", float64(beside))
	r.atMost("second_workflow_p99_ms", p99, rateLate)
	r.atMost("second_tenant_p99_ms", rival, rateLate)
	return r, nil
}

// fired returns when the ticks of the herd were handed out, in order.
func (l rateLoad) fired(ctx context.Context) (all []time.Time, err error) {
	err = l.db.QueryRow(ctx, `
		SELECT array_agg(t.fired_at ORDER BY t.fired_at)
		FROM tick t
		JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id
		WHERE s.workflow = $1`, rateWorkflow).Scan(&all)
	return all, err
}
