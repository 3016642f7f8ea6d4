package upkeep

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/internal/postgres"
)

// statistics are the planner's statistics of tables that are new or have grown.
type statistics struct {
	pool    *pgxpool.Pool
	idle    *sweep.Idle
	updated atomic.Int64 // when this process last updated them
}

// due reports whether it is time to update them. A process that has swept nothing for a while updates them less often.
func (s *statistics) due(context.Context) (bool, error) {
	return time.Since(time.Unix(0, s.updated.Load())) >= s.idle.Pace(0, sweep.RestAnalyze), nil
}

func (s *statistics) update(ctx context.Context) error {
	s.updated.Store(time.Now().UnixNano())
	return postgres.AnalyzeNew(ctx, s.pool)
}
