package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	settledAfter = "1 minute" // after a schedule's last moved tick
	mostSettled  = 500        // at a time
)

// moves ends the moves of ticks. It walks through them from the earliest that has passed.
type moves struct {
	pool    *pgxpool.Pool
	horizon *cluster.Horizon
	// settle returns a schedule to the timing of its spec. It may be nil.
	settle func(ctx context.Context, tenant tenants.ID, workflow, key string) error
	low    cluster.LowEnd
	at     moved // the last one; its zero value: a walk begins
}

// moved is a schedule whose ticks were moved.
type moved struct {
	until         time.Time
	tenant        tenants.ID
	id            int64
	workflow, key string
}

func newMoves(c Config) *moves {
	return &moves{pool: c.Pool, horizon: c.Horizon, settle: c.Settle, low: cluster.LowEnd{
		Index:  "schedule_moved",
		First:  `SELECT (SELECT moved_until FROM schedule WHERE moved_until < (SELECT ` + postgres.Now + `) AND moved_until >= $1 ORDER BY moved_until LIMIT 1)`,
		Below:  `SELECT (SELECT moved_until FROM schedule WHERE moved_until >= $1 AND moved_until < $2 ORDER BY moved_until LIMIT 1)`,
		Search: cluster.Search{Every: cluster.SeldomSearch, Most: mostSearched, Wide: true},
	}}
}

// settleSome restores the timings of the specs of the next schedules whose moved ticks have passed, and reports whether there may be
// more. A schedule that cannot be restored does not stop the others.
func (m *moves) settleSome(ctx context.Context) (more bool, err error) {
	if m.settle == nil {
		return false, nil
	}
	if m.at.until.IsZero() {
		_, first, err := m.low.Look(ctx, m.pool, m.horizon)
		if err != nil || first.IsZero() {
			return false, err
		}
		m.at = moved{until: first}
	}
	var page []moved
	var one moved
	err = postgres.ReadPage(ctx, m.pool, `
		SELECT moved_until, tenant_id, id, workflow, key
		FROM schedule
		WHERE (moved_until, tenant_id, id) > ($1, $2, $3) AND moved_until < (SELECT `+postgres.Now+`) - $4::interval
		ORDER BY moved_until, tenant_id, id
		LIMIT $5`, []any{m.at.until, m.at.tenant, m.at.id, settledAfter, mostSettled},
		[]any{&one.until, &one.tenant, &one.id, &one.workflow, &one.key}, func() error {
			page = append(page, one)
			return nil
		})
	if err != nil {
		return false, fmt.Errorf("look for moves that have passed: %w", err)
	}
	if more = len(page) == mostSettled; more {
		m.at = page[mostSettled-1]
	} else {
		m.at = moved{}
	}
	var errs []error
	for _, p := range page {
		if err := m.settle(ctx, p.tenant, p.workflow, p.key); err != nil {
			errs = append(errs, fmt.Errorf("settle the moves of a schedule: %w", err))
		}
	}
	return more, errors.Join(errs...)
}
