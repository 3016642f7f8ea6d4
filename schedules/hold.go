package schedules

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/tenants"
)

// The states of a workflow.
const (
	workflowActive = "active"
	workflowHeld   = "held"
)

// Hold stops a workflow: no tick of it is handed out until it is released. Its ticks wait, and follow the policies of their schedules then.
// Running ticks and retries go on. It changes one row, however many schedules the workflow has. A held workflow stays as it is.
func (s *Schedules) Hold(ctx context.Context, tenant tenants.ID, name string, pre version.Precondition) (Workflow, error) {
	return s.setHeld(ctx, tenant, name, pre, workflowHeld)
}

// Release ends a hold. An active workflow stays as it is. A trigger of the schema adds a row to table wake, by which dispatch/control
// makes due what waits.
func (s *Schedules) Release(ctx context.Context, tenant tenants.ID, name string, pre version.Precondition) (Workflow, error) {
	return s.setHeld(ctx, tenant, name, pre, workflowActive)
}

func (s *Schedules) setHeld(ctx context.Context, tenant tenants.ID, name string, pre version.Precondition, state string) (w Workflow, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `SELECT `+workflowColumns+` FROM workflow WHERE tenant_id = $1 AND name = $2 FOR UPDATE`, tenant, name) // CollectRows reports the error
		found, err := pgx.CollectRows(rows, scanWorkflow)
		if err != nil {
			return fmt.Errorf("lock workflow: %w", err)
		}
		if len(found) == 0 {
			return noWorkflow(name)
		}
		if w = found[0]; pre.Check(true, w.revision()) != nil || w.State == state {
			return pre.Check(true, w.revision())
		}
		before := w
		rows, _ = tx.Query(ctx, `
			UPDATE workflow
			SET held_at = CASE WHEN $3 = 'held' THEN `+postgres.Now+` END, updated_at = `+postgres.Now+`
			WHERE tenant_id = $1 AND name = $2
			RETURNING `+workflowColumns, tenant, name, state) // CollectExactlyOneRow reports the error
		if w, err = pgx.CollectExactlyOneRow(rows, scanWorkflow); err != nil {
			return fmt.Errorf("change workflow: %w", err)
		}
		action := "workflow.release"
		if state == workflowHeld {
			action = "workflow.hold"
		}
		return tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: action, Target: "workflows/" + name, Before: before, After: w})
	})
	return w, err
}
