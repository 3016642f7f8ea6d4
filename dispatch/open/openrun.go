package open

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/jackc/pgx/v5"
)

// openRun opens the chunks of one sweep whose numbers are from first to through, in one transaction: what that costs hardly
// depends on how little they hold. Those that share schedules are opened wave by wave. Where it cannot be done, and of those that must wait for others, each is opened by itself,
// so that none suffers from another. Chunks that somebody else is opening are left to them.
func (o *Opener) OpenRun(ctx context.Context, first, through int64) error {
	if through <= first {
		return o.Open(ctx, first)
	}
	behind, err := o.openRange(ctx, first, through)
	for waited := len(behind) + 1; err == nil && 0 < len(behind) && len(behind) < waited; { // for others of the run: they come next
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
	rows, _ := o.pool.Query(ctx, `
		SELECT c.id
		FROM chunk c
		JOIN chunk f ON f.id = $1 AND f.shard = c.shard AND f.lane = c.lane
		WHERE c.id BETWEEN $1 AND $2 AND `+chunk.StillUnopened+`
		ORDER BY c.id`, first, through) // CollectRows reports the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for unopened chunks: %w", err)
	}
	return ids, nil
}
