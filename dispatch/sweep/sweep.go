package sweep

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

const (
	lookEvery = 200 * time.Millisecond // the sweep looks at least so often
	lookLate  = 2 * time.Millisecond   // it wakes just after the second, by the database's clock
	sweepers  = 3                      // shards that one process sweeps concurrently
)

// sweep looks when the next shard is due, and sweeps due shards, until ctx ends.
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
		case <-s.cluster.Notifier.Due():
		case <-timer.C:
		}
		wait, err := s.Look(ctx, busy, due)
		if err != nil && ctx.Err() == nil {
			s.log.Error("cannot look for due shards", "error", err)
		}
		timer.Reset(wait)
	}
}

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
	if _, alive := s.cluster.Member.Self(); more && alive && slices.Contains(s.cluster.Member.Shards(), shard) {
		due <- shard // never blocks: the channel has room for every shard, and each shard is in it at most once
		return
	}
	busy.remove(shard)
	if len(due) == 0 { // otherwise the queued shards come first, and the periodic look is early enough
		s.Wake()
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

// openSwept offers the runs of a committed sweep to the opener of this process, or to the other processes if this one opens nothing. River's
// clients are notified of the runs that are left to them.
func (s *Sweeper) openSwept(runs []chunk.Run) {
	if len(runs) == 0 {
		return
	}
	if s.offer != nil {
		s.cluster.Notifier.Queued(s.offer(runs))
		return
	}
	texts, lanes := make([]string, len(runs)), make([]string, len(runs))
	for i := range runs {
		texts[i], lanes[i] = runs[i].Text(), runs[i].Lane
	}
	s.cluster.Notifier.Elsewhere(texts, lanes)
}
