package schedules

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// PauseFailing pauses a schedule whose ticks failed too often in a row, with a note that says so. One that is gone is
// left alone.
func (s *Schedules) PauseFailing(ctx context.Context, tenant tenants.ID, schedule int64, note string) error {
	ctx = postgres.ForTenant(ctx, int32(tenant))
	query, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var workflow, key string
	err := s.Pool.QueryRow(query, `SELECT workflow, key FROM schedule WHERE tenant_id = $1 AND id = $2`, tenant, schedule).Scan(&workflow, &key)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read schedule: %w", err)
	}
	_, err = s.Pause(ctx, tenant, workflow, key, PauseParams{Note: &note}, Changer{By: "carillon"})
	return err
}
