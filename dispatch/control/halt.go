package control

import (
	"context"
	"fmt"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// HaltParams say why a tenant is halted.
type HaltParams struct {
	Note *string `json:"note,omitempty"`
}

const longestHaltNote = 1000

// Halt stops all firing of a tenant. The sweep skips its due cohorts, and ticks that are swept but not handed out are skipped as
// paused. Ticks that were handed out run on. A tenant that is halted already changes only its note, if p has one.
func (c *Control) Halt(ctx context.Context, tenant tenants.ID, p HaltParams) (f history.Firing, err error) {
	if p.Note != nil && len(*p.Note) > longestHaltNote {
		return f, fault.Invalid("/note", "a note has at most %d bytes", longestHaltNote)
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, c.api, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
		UPDATE tenant
		SET halted_at = COALESCE(halted_at, `+postgres.Now+`), halt_note = COALESCE($2, halt_note), updated_at = `+postgres.Now+`
		WHERE id = $1
		RETURNING halted_at, halt_note`, tenant, p.Note).Scan(&f.HaltedAt, &f.Note)
		if err != nil {
			return err
		}
		return tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: "tenant.halt", Target: "admin/halt", After: f})
	})
	if err != nil {
		return f, fmt.Errorf("halt: %w", err)
	}
	f.HaltedAt = new(f.HaltedAt.UTC())
	return f, nil
}

// Continue ends a halt: the tenant's schedules fire again. The missed policy of each schedule decides about the times since the halt.
// A trigger of the tenant's row adds a row to table wake, and a Waker makes the parked ticks of the tenant due.
func (c *Control) Continue(ctx context.Context, tenant tenants.ID) (f history.Firing, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, c.api, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `UPDATE tenant SET halted_at = NULL, halt_note = NULL, updated_at = `+postgres.Now+` WHERE id = $1 AND halted_at IS NOT NULL`, tenant)
		if err != nil || done.RowsAffected() == 0 {
			return err
		}
		return tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: "tenant.continue", Target: "admin/continue"})
	})
	if err != nil {
		return f, fmt.Errorf("continue: %w", err)
	}
	return f, nil
}
