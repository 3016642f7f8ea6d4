package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/runs"
)

// ready begins or resumes the runs of cohorts. It retimes the cohorts that have served all times of an earlier timing, and leaves them out.
func (p *pass) ready(ctx context.Context, all []*due) ([]*due, error) {
	all, err := p.begin(ctx, all)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return p.retime(ctx, all)
}

// begin finds the timing of each cohort, and begins or resumes its run. It quarantines a cohort that cannot be computed, and leaves it
// out.
func (p *pass) begin(ctx context.Context, all []*due) ([]*due, error) {
	names := make([]cohorts.CohortTiming, len(all))
	for i, c := range all {
		names[i] = cohorts.CohortTiming{
			Tenant: c.TenantID, Shard: p.shard, ID: c.ID, Hash: c.Hash[:], Stamp: cohorts.Stamp{Revision: c.Revision, TZData: string(c.TZData)},
		}
	}
	timings, bad, err := p.timings.Of(ctx, p.tx, names)
	if err != nil {
		return nil, err
	}
	ready := all[:0]
	for i, c := range all {
		c.timing = timings[i]
		switch {
		case c.timing == nil:
			p.aside.leave(c, p.now, bad[c.ID])
			continue
		case !runs.KnowsMissed(string(c.Missed)):
			p.aside.leave(c, p.now, fmt.Errorf("missed: %w", calendar.ErrNewerForm))
			continue
		case c.served():
		case c.NextAt == nil && c.RunAt == nil:
			p.aside.leave(c, p.now, errNoNext)
			continue
		case c.RunAt == nil && c.timing.Due(c.NextAt.UTC()).After(p.now): // a change woke it before the end of its quiet hours
			p.aside.putOff(c, c.timing.Due(c.NextAt.UTC()))
			continue
		default:
			c.beginRun(p.now)
		}
		p.timings.Remember(names[i]) // for the messages of its ticks
		ready = append(ready, c)
	}
	return ready, p.aside.write(ctx, p.tx, p.shard)
}

var errNoNext = errors.New("it is due, but has no next time")

// beginRun begins the cohort's run, or resumes it.
func (c *due) beginRun(now time.Time) {
	if c.RunAt != nil {
		c.run = runs.Resume(c.timing, c.RunAt.UTC(), c.RunFrom.UTC(), int(*c.RunLost), *c.RunDrop, now)
	} else {
		until := now
		if c.RetimeAt != nil {
			until = *c.RetimeAt
		}
		c.run = runs.BeginUntil(c.timing, c.NextAt.UTC(), until, now, string(c.Missed))
	}
	if sabotage.NextFromNow.On() {
		c.skipToNow(now)
	}
	if walk, jitters := runs.WalkOf(c.timing, c.run, string(c.Workflow)); jitters {
		c.walk, c.leg = walk, new(walk.Leg(c.AtPhase, c.AtID, now))
	}
}

// skipToNow looks for the run's next time after now, and loses the times between. Only the fault lab calls it.
func (c *due) skipToNow(now time.Time) {
	if next, ok := c.timing.Next(now); ok {
		c.run.At, c.run.Missed, c.run.Next = c.NextAt.UTC(), 0, next.At
	}
}
