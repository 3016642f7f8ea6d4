package open

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// excluded sets Excluded of the groups whose nominal time is excluded now, because a calendar of their cohort was edited after the sweep.
func (o *Opener) excluded(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shard int16, groups []chunk.Group) error {
	var ids []int64
	for _, g := range groups {
		if g.Dated && !g.Forced && !g.Drop {
			ids = append(ids, g.Cohort)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	present, err := o.timings.Present(ctx, tx, tenant, shard, ids)
	if err != nil {
		return fmt.Errorf("look for edited calendars: %w", err)
	}
	for i := range groups {
		g := &groups[i]
		if t := present[g.Cohort]; t != nil && g.Dated && !g.Forced && !g.Drop {
			g.Excluded = t.Absence(g.At) == calendar.AbsentExcluded
		}
	}
	return nil
}
