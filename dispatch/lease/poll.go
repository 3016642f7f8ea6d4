package lease

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	pollEvery  = 2 * time.Second
	mostPolled = 1000 // workflows that one statement looks at
)

// PollWatch wakes the long polls of this process for ready ticks, and writes which workflows were polled.
type PollWatch struct {
	pool     *pgxpool.Pool
	notifier *cluster.Notifier
	horizon  *cluster.Horizon
	ready    *ReadyQueues
	log      *slog.Logger
}

// NewPollWatch returns a PollWatch of the polls of leases.
func NewPollWatch(pool *pgxpool.Pool, leases *Leases, log *slog.Logger) *PollWatch {
	return &PollWatch{pool: pool, notifier: leases.notifier, horizon: leases.horizon, ready: leases.Ready, log: log}
}

// Run looks for ready ticks, and writes polls, until ctx ends.
func (w *PollWatch) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { loop.Every(ctx, w.log, writePollsEvery, "write polls", w.WritePolls) })
	loop.Every(ctx, w.log, pollEvery, "look for ready ticks", w.wakePolls)
	all.Wait()
}

// wakePolls wakes the long polls of workflows with ready ticks, in case a notification was lost. It looks at each workflow once, however
// many polls wait for it.
func (w *PollWatch) wakePolls(ctx context.Context) error {
	all := w.notifier.Polled()
	for len(all.Tenants) > 0 {
		n := min(mostPolled, len(all.Tenants))
		if err := w.WakePollsOf(ctx, cluster.Polled{Tenants: all.Tenants[:n], Workflows: all.Workflows[:n]}); err != nil {
			return err
		}
		all = cluster.Polled{Tenants: all.Tenants[n:], Workflows: all.Workflows[n:]}
	}
	return nil
}

// readyOf returns those of the workflows $2 of tenants $1 that have rows of ready with numbers from $3 on.
const readyOf = `
		SELECT p.tenant, p.workflow
		FROM unnest($1::int[], $2::text[], $3::bigint[]) AS p (tenant, workflow, from_id)
		CROSS JOIN LATERAL (SELECT FROM ready r WHERE r.tenant_id = p.tenant AND r.workflow = p.workflow AND r.id >= p.from_id ORDER BY r.id LIMIT 1) r`

// WakePollsOf wakes the long polls of those of some workflows that have ready ticks.
func (w *PollWatch) WakePollsOf(ctx context.Context, some cluster.Polled) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	from := make([]int64, len(some.Tenants))
	for i, tenant := range some.Tenants {
		from[i] = w.ready.Of(tenants.ID(tenant), some.Workflows[i], w.horizon).lowest()
	}
	rows, _ := w.pool.Query(ctx, readyOf, some.Tenants, some.Workflows, from) // ForEachRow reports the error
	var tenant int32
	var workflow string
	_, err := pgx.ForEachRow(rows, []any{&tenant, &workflow}, func() error {
		w.notifier.Wake(cluster.TopicOf(tenants.ID(tenant), workflow), math.MaxInt)
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for ready ticks: %w", err)
	}
	return nil
}
