package sweep

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const (
	mostCohorts = 5000 // in one transaction
	mostTicks   = 8000
	sweepLimit  = 10 * time.Second
)

// pass is one sweep of a shard: one transaction, which holds the shard's lock. It takes due cohorts, begins their runs, reads as many of
// their members as their tenants may have now, packs those into chunks, and moves the cohorts.
type pass struct {
	tx      pgx.Tx
	shard   int16
	now     time.Time // the database's clock, read under the lock
	from    dueLook   // where reading due cohorts began
	timings *cohorts.Timings
	fair    *fairness
	aside   aside

	made  made
	turns turns
	again bool // there may be more to do at once
}

// made is what a pass makes.
type made struct {
	chunks  *chunk.Batch
	moved   []*due // cohorts whose place is to be written
	ticks   int    // members that were read
	delayed []delayedRun
}

// delayedRun is what a pass sends of a cohort with fixed_delay.
type delayedRun struct {
	cohort  *due
	members []chunk.Member
}

func (s *Sweeper) newPass(tx pgx.Tx, shard int16, f *found) *pass {
	return &pass{
		tx: tx, shard: shard, now: f.now, from: f.from, timings: s.timings, fair: s.fair, aside: aside{log: s.log, held: f.held, rated: f.rated},
		made: made{chunks: chunk.NewBatch(shard)}, turns: turns{next: map[tenants.ID]time.Time{}, joined: map[tenants.ID]bool{}},
	}
}

// SweepOnce sweeps one batch of a shard in one transaction, and reports whether there may be more.
func (s *Sweeper) SweepOnce(ctx context.Context, shard int16) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	began := time.Now()
	var p *pass
	var runs []chunk.Run
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		f, err := takeDue(ctx, tx, shard, s.floors.Look(shard, s.cluster.Horizon, false))
		if err != nil {
			return err
		}
		p = s.newPass(tx, shard, &f)
		if err := p.run(ctx, &f); err != nil {
			return err
		}
		runs, err = s.chunker.insertChunks(ctx, tx, p.made.chunks)
		sabotage.Crash("sweep.before_commit")
		return err
	})
	if err != nil {
		return false, err
	}
	sabotage.Crash("sweep.committed")
	p.made.chunks.EndSpans()
	s.openSwept(runs)
	if len(p.turns.paced) > 0 {
		s.fair.pacer.stir()
	}
	s.idle.stir(len(p.made.chunks.Made))
	if p.made.ticks > 0 {
		s.metrics.swept.Add(float64(p.made.ticks))
		s.metrics.sweepSeconds.Observe(time.Since(began).Seconds())
	}
	return p.again, nil
}

// run fills the chunks of the pass, and queues the other statements that are written with them.
func (p *pass) run(ctx context.Context, f *found) error {
	for tenant, batch := range f.tries {
		p.made.chunks.AddTries(tenant, batch)
		p.again = p.again || len(batch) >= mostTries
	}
	room := mostTicks
	if len(f.turns) > 0 {
		room -= turnTicks
	}
	if err := p.fresh(ctx, f.cohorts, room); err != nil {
		return err
	}
	if err := p.serve(ctx, f.turns, mostTicks-p.made.ticks); err != nil {
		return err
	}
	return p.end(ctx)
}

// send puts members of a cohort into chunks.
func (p *pass) send(c *due, members []chunk.Member) {
	p.made.chunks.AddMembers(c.source(), members)
	if _, delays := c.timing.FixedDelay(); delays {
		p.made.delayed, c.out = append(p.made.delayed, delayedRun{c, members}), len(members) > 0
	}
}

// end queues the new places of the shard's cohorts and turns. They are written in the round trip that writes the chunks.
func (p *pass) end(ctx context.Context) error {
	over, err := p.markOut(ctx)
	if err != nil {
		return err
	}
	if len(p.made.moved) > 0 {
		if err := p.lookAhead(ctx); err != nil {
			return err
		}
		p.advance()
	}
	record.QueueOver(&p.made.chunks.Along, p.shard, over) // after advance, which finds rows by where they are
	if err := p.endTurns(ctx); err != nil {
		return err
	}
	p.queueRateTurns()
	if sabotage.TwoTransactions.On() {
		p.made.chunks.Along.Queue(`COMMIT AND CHAIN`)
	}
	return nil
}
