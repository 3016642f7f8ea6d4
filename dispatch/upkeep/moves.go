package upkeep

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	settledAfter = "1 minute" // after a schedule's last moved tick
	mostSettled  = 500        // at a time
)

// moves ends the moves of ticks.
type moves struct {
	pool *pgxpool.Pool
	// settle returns a schedule to the timing of its spec. It may be nil.
	settle func(ctx context.Context, tenant tenants.ID, workflow, key string) error
}

// settleSome restores the timings of the specs of schedules whose moved ticks have passed, and returns how many it restored.
func (m *moves) settleSome(ctx context.Context) (settled int64, err error) {
	if m.settle == nil {
		return 0, nil
	}
	type name struct {
		Tenant        tenants.ID
		Workflow, Key string
	}
	rows, _ := m.pool.Query(ctx, `
		SELECT tenant_id, workflow, key
		FROM schedule
		WHERE moved_until < (SELECT `+postgres.Now+`) - $1::interval
		ORDER BY moved_until
		LIMIT $2`, settledAfter, mostSettled) // CollectRows reports the error
	names, err := pgx.CollectRows(rows, pgx.RowToStructByPos[name])
	if err != nil {
		return 0, fmt.Errorf("look for moves that have passed: %w", err)
	}
	var errs []error
	for _, n := range names {
		if err := m.settle(ctx, n.Tenant, n.Workflow, n.Key); err != nil {
			errs = append(errs, fmt.Errorf("settle the moves of a schedule: %w", err))
			continue
		}
		settled++
	}
	return settled, errors.Join(errs...)
}
