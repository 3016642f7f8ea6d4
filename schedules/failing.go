package schedules

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// PauseFailing pauses a schedule whose ticks failed too often in a row, with a note that says so, and has the tenant told.
// One that is gone, paused or has ended is left alone.
func (s *Schedules) PauseFailing(ctx context.Context, tenant tenants.ID, schedule int64, note string) error {
	ctx, cancel := context.WithTimeout(postgres.ForTenant(ctx, int32(tenant)), postgres.QueryTimeout)
	defer cancel()
	var workflow, key, status string
	err := s.Pool.QueryRow(ctx, `
		SELECT workflow, key, status
		FROM schedule
		WHERE tenant_id = $1 AND id = $2`, tenant, schedule).Scan(&workflow, &key, &status)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && status != Active {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read schedule: %w", err)
	}
	happened := tenants.Happening{Event: tenants.ScheduleAutoPaused, Cause: workflow, Schedule: schedule, Data: map[string]string{"note": note}}
	_, err = s.pause(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, PauseParams{Note: &note}, Changer{By: "carillon"}, &happened)
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return nil
	}
	return err
}
