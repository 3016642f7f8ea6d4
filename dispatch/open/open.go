package open

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/jackc/pgx/v5"
)

// Open opens a chunk: it decides each of its ticks, commits their rows, and sends the running ones. It leaves a chunk that is open
// already, or gone, as it is.
func (o *Opener) Open(ctx context.Context, id int64) error {
	for range mostEarlier {
		behind, err := o.openRange(ctx, id, id)
		if err != nil || len(behind) == 0 {
			return err
		}
		if err := o.Open(ctx, behind[id]); err != nil {
			return fmt.Errorf("open the earlier chunk %d: %w", behind[id], err)
		}
	}
	return fmt.Errorf("chunk %d has more than %d unopened before it", id, mostEarlier)
}

const mostEarlier = 2000 // chunks before one that are opened first

// OpenRun opens the chunks of one sweep whose numbers are from first to through. One transaction opens all that share no schedules:
// its cost hardly depends on how many ticks they hold. Chunks behind others follow in further transactions. If such a transaction
// fails, each chunk is opened by itself, so that none suffers from another. Chunks that another process is opening are left to it.
func (o *Opener) OpenRun(ctx context.Context, first, through int64) error {
	if through <= first {
		return o.Open(ctx, first)
	}
	behind, err := o.openRange(ctx, first, through)
	for waited := len(behind) + 1; err == nil && 0 < len(behind) && len(behind) < waited; { // behind others of the run, which are open now
		waited = len(behind)
		behind, err = o.openRange(ctx, first, through)
	}
	left := slices.Sorted(maps.Keys(behind))
	if err != nil {
		if left, err = o.unopenedOf(ctx, first, through); err != nil {
			return err
		}
	}
	var errs []error
	var later *notYet
	for _, id := range left {
		err := o.Open(ctx, id)
		if one, ok := errors.AsType[*notYet](err); ok {
			later = later.sooner(one)
		} else if err != nil {
			errs = append(errs, fmt.Errorf("open chunk %d: %w", id, err))
		}
	}
	if len(errs) == 0 && later != nil {
		return later
	}
	return errors.Join(errs...)
}

// unopenedOf returns the chunks of a run that are not open.
func (o *Opener) unopenedOf(ctx context.Context, first, through int64) ([]int64, error) {
	rows, _ := o.pool.Query(ctx, `SELECT c.id FROM chunk c WHERE `+chunk.OfRun+` ORDER BY c.id`, first, through) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for unopened chunks: %w", err)
	}
	return ids, nil
}

// openRange opens the chunks of a shard whose numbers are from first to through, in one transaction. A chunk that shares a schedule with
// an earlier unopened one stays unopened: behind maps it to the earlier one. If chunks are left to a later try, the error is notYet, and
// the others are open.
func (o *Opener) openRange(ctx context.Context, first, through int64) (behind map[int64]int64, err error) {
	self, alive := o.cluster.Member.Self()
	if !alive {
		return nil, errors.New("this process was silent and opens nothing")
	}
	began := time.Now()
	var l locked
	open := func() error {
		return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) (err error) {
			if l, err = o.lockChunks(ctx, tx, first, through); err != nil || len(l.ready) == 0 {
				return err
			}
			if err = o.fill(ctx, tx, l.ready); err != nil {
				return err
			}
			err = o.write(ctx, tx, l.ready, self)
			sabotage.Crash("open.before_commit")
			return err
		})
	}
	err = errStopped
	for try := 0; try < mostStops && errors.Is(err, errStopped); try++ {
		err = postgres.Retry(ctx, open)
	}
	if err != nil {
		return nil, err
	}
	sabotage.Crash("open.committed")
	for _, p := range l.ready {
		o.recordSpans(p, began)
		o.send(p)
	}
	return l.behind, errors.Join(l.later...)
}

// errStopped is the error of an opening whose tenant was halted or suspended after the opening had read the tenant.
var errStopped = errors.New("the tenant was stopped while its chunk was being opened")

const mostStops = 3 // openings of a run in a row that end with errStopped

// fill fills the plans of locked chunks, which are one of later tries, or several of first ones.
func (o *Opener) fill(ctx context.Context, tx pgx.Tx, all []*plan) error {
	if all[0].chunk.Kind == chunk.LaterTries {
		return o.openTries(ctx, tx, all[0])
	}
	return o.openFirst(ctx, tx, all)
}

// openFirst decides the ticks of schedules whose nominal time has come.
func (o *Opener) openFirst(ctx context.Context, tx pgx.Tx, all []*plan) error {
	n := 0
	for _, p := range all {
		if err := o.excluded(ctx, tx, p.chunk.TenantID, p.chunk.Shard, p.groups); err != nil {
			return err
		}
		n += p.items
	}
	items := make([]item, 0, n)
	for _, p := range all {
		items = flatten(items, p)
	}
	// In rising order of id, so that all openings lock the states in one order.
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.id, b.id) })
	if err := o.decide(ctx, tx, all, items); err != nil {
		return err
	}
	return cancelDeleted(ctx, tx, items)
}

// item is one schedule of a chunk, with its group.
type item struct {
	*chunk.Group
	of      *plan
	id      int64
	decided bool
}

func flatten(items []item, p *plan) []item {
	for i := range p.groups {
		for _, id := range p.groups[i].IDs {
			items = append(items, item{Group: &p.groups[i], of: p, id: id})
		}
	}
	return items
}
