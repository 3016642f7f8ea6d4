package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const (
	lookEvery   = 200 * time.Millisecond // the sweep looks at least so often
	lookLate    = 2 * time.Millisecond   // it wakes just after the second, by the database's clock
	sweepers    = 3                      // shards swept at once by one process
	mostCohorts = 5000                   // in one transaction
	mostTicks   = 8000
	sweepLimit  = 10 * time.Second
)

// sweep looks when the next shard is due, and has due shards swept, until ctx ends.
func (s *Sweeper) sweep(ctx context.Context) {
	due := make(chan int16, cohorts.Shards)
	busy := NewShardSet()
	var workers sync.WaitGroup
	defer workers.Wait()
	for range sweepers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case shard := <-due:
					s.sweepTurn(ctx, shard, busy, due)
				}
			}
		})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.notifier.Due():
		case <-timer.C:
		}
		wait, err := s.Look(ctx, busy, due)
		if err != nil && ctx.Err() == nil {
			s.log.Error("cannot look for due shards", "error", err)
		}
		timer.Reset(wait)
	}
}

// poke makes the sweep of this process look at once.
func (s *Sweeper) Poke() { s.notifier.CameDue() }

// sweepFor is how long a shard is swept before the others that are due have their turn.
const sweepFor = 50 * time.Millisecond

// sweepTurn sweeps a shard for a while. A shard with more due cohorts waits behind the others; one whose sweep failed rests.
func (s *Sweeper) sweepTurn(ctx context.Context, shard int16, busy *shardSet, due chan<- int16) {
	more, err := s.sweepWhole(ctx, shard)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("cannot sweep", "shard", shard, "error", err)
		}
		busy.fail(shard, time.Now())
		return
	}
	if _, alive := s.member.Self(); more && alive && slices.Contains(s.member.Shards(), shard) {
		due <- shard // there is room: each shard is in it once at most
		return
	}
	busy.remove(shard)
	if len(due) == 0 { // else what is due by now waits behind those that are queued, and is looked for soon enough
		s.Poke()
	}
}

// sweepWhole sweeps a shard until nothing in it is due, or others may be waiting; then more is true.
func (s *Sweeper) sweepWhole(ctx context.Context, shard int16) (more bool, err error) {
	more = true
	for began := time.Now(); more && err == nil && ctx.Err() == nil && time.Since(began) < sweepFor; {
		more, err = s.SweepOnce(ctx, shard)
	}
	return more, err
}

// sweepOnce sweeps one batch of a shard in one transaction, and tells whether there may be more.
func (s *Sweeper) SweepOnce(ctx context.Context, shard int16) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	began := time.Now()
	var p *pass
	var runs []chunk.Run
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		found, err := s.takeDue(ctx, tx, shard)
		if err != nil {
			return err
		}
		p = &pass{
			Sweeper: s, tx: tx, shard: shard, now: found.now, chunks: chunk.NewBatch(shard),
			turns: map[tenants.ID]time.Time{}, lined: map[tenants.ID]bool{}, from: found.from,
		}
		for tenant, batch := range found.tries {
			p.chunks.AddTries(tenant, batch)
			p.again = p.again || len(batch) >= mostTries
		}
		room := mostTicks
		if len(found.turns) > 0 {
			room -= turnTicks
		}
		if err := p.fresh(ctx, found.cohorts, room); err != nil {
			return err
		}
		if err := p.serve(ctx, found.turns, mostTicks-p.ticks); err != nil {
			return err
		}
		if err := p.end(ctx); err != nil {
			return err
		}
		if sabotage.TwoTransactions.On() {
			return p.chunks.Write(ctx, tx)
		}
		if runs, err = s.chunker.insertChunks(ctx, tx, p.chunks); err != nil {
			return err
		}
		sabotage.Crash("sweep.before_commit")
		return nil
	})
	if err != nil {
		return false, err
	}
	sabotage.Crash("sweep.committed")
	if sabotage.TwoTransactions.On() {
		if err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { runs, err = s.chunker.insertChunks(ctx, tx, p.chunks); return err }); err != nil {
			return false, err
		}
	}
	s.openSwept(runs)
	s.idle.stir(len(p.chunks.Made))
	if p.ticks > 0 {
		s.metrics.swept.Add(float64(p.ticks))
		s.metrics.sweepSeconds.Observe(time.Since(began).Seconds())
	}
	return p.again, nil
}

// openSwept has the runs of a committed sweep opened: by this process where it dispatches, else by those that do. River's clients are told
// of what is left to them.
func (s *Sweeper) openSwept(runs []chunk.Run) {
	if len(runs) == 0 {
		return
	}
	if s.offer != nil {
		s.notifier.Queued(s.offer(runs))
		return
	}
	texts, lanes := make([]string, len(runs)), make([]string, len(runs))
	for i := range runs {
		texts[i], lanes[i] = runs[i].Text(), runs[i].Lane
	}
	s.notifier.Elsewhere(texts, lanes)
}

// begin finds the timing of each cohort and the run that it is in or begins. It quarantines a cohort that cannot be
// computed, and leaves it out.
func (s *Sweeper) begin(ctx context.Context, tx pgx.Tx, shard int16, now time.Time, all []*due) ([]*due, error) {
	names := make([]cohorts.CohortTiming, len(all))
	for i, c := range all {
		names[i] = cohorts.CohortTiming{Tenant: c.TenantID, Shard: shard, ID: c.ID, Hash: c.Hash[:], Stamp: cohorts.Stamp{Revision: c.Revision, TZData: string(c.TZData)}}
	}
	timings, bad, err := s.timings.Of(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	var out aside
	ready := all[:0]
	for i, c := range all {
		c.timing = timings[i]
		switch {
		case c.timing == nil:
			s.leave(&out, c, now, bad[c.ID])
			continue
		case !cohorts.KnowsMissed(string(c.Missed)):
			s.leave(&out, c, now, fmt.Errorf("missed: %w", calendar.ErrNewerForm))
			continue
		case c.served():
		case c.NextAt == nil && c.RunAt == nil:
			s.leave(&out, c, now, errNoNext)
			continue
		case c.RunAt == nil && c.timing.Due(c.NextAt.UTC()).After(now): // it was woken before the end of the quiet hours for which it waits
			out.putOff(c, c.timing.Due(c.NextAt.UTC()))
			continue
		default:
			c.beginRun(now)
		}
		ready = append(ready, c)
	}
	return ready, out.write(ctx, tx, shard)
}

var errNoNext = errors.New("it is due, but has no next time")

// beginRun begins the cohort's run, or resumes the one that it is in.
func (c *due) beginRun(now time.Time) {
	if c.RunAt != nil {
		c.run = cohorts.Resume(c.timing, c.RunAt.UTC(), c.RunFrom.UTC(), int(*c.RunLost), *c.RunDrop, now)
	} else {
		until := now
		if c.RetimeAt != nil {
			until = *c.RetimeAt
		}
		c.run = cohorts.BeginRunUntil(c.timing, c.NextAt.UTC(), until, now, string(c.Missed))
	}
	if next, ok := c.timing.Next(now); ok && sabotage.NextFromNow.On() {
		c.run.At, c.run.Missed, c.run.Next = c.NextAt.UTC(), 0, next.At
	}
	if walk, jitters := cohorts.WalkOf(c.timing, c.run, string(c.Workflow)); jitters {
		c.walk, c.leg = walk, new(walk.Leg(c.AtSpread, c.AtID, now))
	}
}
