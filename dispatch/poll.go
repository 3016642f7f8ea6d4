package dispatch

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	pollEvery  = 2 * time.Second
	mostPolled = 1000 // workflows that one statement looks at
)

// wakePolls wakes the long polls of workflows with ready ticks, should a notification be lost. However many polls wait, they cost one
// look at each workflow.
func (d *Dispatch) wakePolls(ctx context.Context) error {
	all := d.hub.polled()
	for len(all.tenants) > 0 {
		n := min(mostPolled, len(all.tenants))
		if err := d.wakePollsOf(ctx, polled{all.tenants[:n], all.workflows[:n]}); err != nil {
			return err
		}
		all = polled{all.tenants[n:], all.workflows[n:]}
	}
	return nil
}

// readyOf finds workflows $2 of tenants $1 that have ready ticks, in rows from number $3 on.
const readyOf = `
		SELECT p.tenant, p.workflow
		FROM unnest($1::int[], $2::text[], $3::bigint[]) AS p (tenant, workflow, from_id)
		CROSS JOIN LATERAL (SELECT FROM ready r WHERE r.tenant_id = p.tenant AND r.workflow = p.workflow AND r.id >= p.from_id ORDER BY r.id LIMIT 1) r`

func (d *Dispatch) wakePollsOf(ctx context.Context, some polled) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	from := make([]int64, len(some.tenants))
	for i, tenant := range some.tenants {
		from[i] = d.ready.of(tenants.ID(tenant), some.workflows[i], &d.horizon).lowest()
	}
	rows, _ := d.Pool.Query(ctx, readyOf, some.tenants, some.workflows, from) // ForEachRow reports the error
	var tenant int32
	var workflow string
	_, err := pgx.ForEachRow(rows, []any{&tenant, &workflow}, func() error {
		d.hub.wake(topicOf(tenants.ID(tenant), workflow), math.MaxInt)
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for ready ticks: %w", err)
	}
	return nil
}
