package forecast

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// lane is the rate of a workflow or of an endpoint, with the ticks that
// are due to pass it. Several workflows can share the rate of an endpoint.
type lane struct {
	name      string // for people
	endpoint  bool   // it comes after the tenant's own rate
	perSecond float64
	ramp      float64         // minutes
	workflows map[string]bool // whose ticks pass it
	minutes   []float64
}

// lanes reads the rates of a tenant's workflows and endpoints.
func (f *Forecasts) lanes(ctx context.Context, tenant tenants.ID, minutes int) ([]*lane, error) {
	rows, _ := f.pool.Query(ctx, `
		SELECT w.name, w.rate, w.ramp_s, e.name, e.rate, e.ramp_s
		FROM workflow w
		LEFT JOIN endpoint e ON e.tenant_id = w.tenant_id AND e.name = w.endpoint
		WHERE w.tenant_id = $1 AND (w.rate IS NOT NULL OR e.rate IS NOT NULL)
		ORDER BY w.name
		LIMIT $2`, tenant, mostGroups) // ForEachRow reports the error
	var all []*lane
	endpoints := map[string]*lane{}
	var workflow string
	var endpoint *string
	var rate, ramp, endpointRate, endpointRamp *int32
	_, err := pgx.ForEachRow(rows, []any{&workflow, &rate, &ramp, &endpoint, &endpointRate, &endpointRamp}, func() error {
		if rate != nil {
			all = append(all, newLane(fmt.Sprintf("the rate of workflow %q", workflow), *rate, ramp, minutes))
			all[len(all)-1].workflows[workflow] = true
		}
		if endpointRate != nil {
			l := endpoints[*endpoint]
			if l == nil {
				l = newLane(fmt.Sprintf("the rate of endpoint %q", *endpoint), *endpointRate, endpointRamp, minutes)
				l.endpoint, endpoints[*endpoint] = true, l
				all = append(all, l)
			}
			l.workflows[workflow] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	return all, nil
}

func newLane(name string, rate int32, ramp *int32, minutes int) *lane {
	l := &lane{name: name, perSecond: float64(rate), workflows: map[string]bool{}, minutes: make([]float64, minutes)}
	if ramp != nil {
		l.ramp = float64(*ramp) / secondsPerMinute
	}
	return l
}

// lanesOf returns the minutes of the lanes that the ticks of a workflow pass.
func (o *estimate) lanesOf(workflow string) (into [][]float64) {
	for _, l := range o.lanes {
		if l.workflows[workflow] {
			into = append(into, l.minutes)
		}
	}
	return into
}

// queueAhead simulates, minute by minute, the ticks that wait for one rate.
type queueAhead struct {
	perSecond, ramp float64
	backlog         float64
	risen           float64 // for how many minutes the rate has risen since a pause
}

// capacity returns how many ticks pass in the next minute.
func (q *queueAhead) capacity() float64 {
	part := 1.0
	if q.risen < q.ramp {
		middle := min(q.risen+0.5, q.ramp)
		part = 0.1 + 0.9*middle/q.ramp
	}
	return q.perSecond * secondsPerMinute * part
}

// pass adds the ticks of a minute, and returns how many pass. share is the part of the minute after which no tick waits any more. It is 0
// if none waited before the minute, or some still wait after it.
func (q *queueAhead) pass(come float64) (passed, share float64) {
	most := q.capacity()
	if q.risen++; come <= 0 && q.backlog <= 0 {
		q.risen = 0
	}
	all := q.backlog + max(0, come)
	passed = min(all, most)
	if q.backlog > 0 && all <= most {
		share = all / most
	}
	q.backlog = all - passed
	return passed, share
}

// waiting is what waits at the end of a minute, over all rates, and the part of the minute after which nothing waited any more.
type waiting struct{ backlog, share float64 }

// queues simulates how the ticks of all minutes pass the rates of workflows, then that of the tenant, then those of endpoints.
func (o *estimate) queues(q tenants.Quotas) []waiting {
	all := make([]waiting, len(o.minutes))
	tenant := &queueAhead{perSecond: float64(q.TicksPerSecond)}
	lanes := make([]*queueAhead, len(o.lanes))
	for i, l := range o.lanes {
		lanes[i] = &queueAhead{perSecond: l.perSecond, ramp: l.ramp}
	}
	for minute, come := range o.minutes {
		late := make(map[string]float64) // ticks of a workflow that pass later than they are due
		w := &all[minute]
		add := func(q *queueAhead, come float64) (passed float64) {
			passed, share := q.pass(come)
			w.backlog, w.share = w.backlog+q.backlog, max(w.share, share)
			return passed
		}
		for i, l := range o.lanes {
			if !l.endpoint {
				passed := add(lanes[i], l.minutes[minute])
				for workflow := range l.workflows {
					late[workflow] = l.minutes[minute] - passed
				}
				come += passed - l.minutes[minute]
			}
		}
		add(tenant, come)
		for i, l := range o.lanes {
			if l.endpoint {
				come := l.minutes[minute]
				for workflow := range l.workflows {
					come -= late[workflow]
				}
				add(lanes[i], come)
			}
		}
	}
	return all
}

// longestDrain returns how long the ticks of a minute take to pass the slowest of their rates.
func (o *estimate) longestDrain(minute int, q tenants.Quotas) time.Duration {
	longest := drainTime(math.Round(o.minutes[minute]), float64(q.TicksPerSecond))
	for _, l := range o.lanes {
		longest = max(longest, drainTime(math.Round(l.minutes[minute]), l.perSecond))
	}
	return longest
}
