package expect

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// noWorkersData are the data of workflow.no_workers.
type noWorkersData struct {
	Workflow string     `json:"workflow"`
	Ready    int64      `json:"ready"`          // ticks that wait; about the first 2,000 are counted
	PolledAt *time.Time `json:"last_polled_at"` // null: never, or long ago
}

// waitingWorkflows finds the pulled workflows of which ticks wait, one after the other, from a place on.
const waitingWorkflows = `
		WITH RECURSIVE waiting (tenant_id, workflow, n) AS (
			(SELECT tenant_id, workflow, 1 FROM ready WHERE (tenant_id, workflow) > ($1, $2) ORDER BY tenant_id, workflow LIMIT 1)
			UNION ALL
			SELECT next.tenant_id, next.workflow, w.n + 1
			FROM waiting w
			CROSS JOIN LATERAL (
				SELECT tenant_id, workflow FROM ready WHERE (tenant_id, workflow) > (w.tenant_id, w.workflow) ORDER BY tenant_id, workflow LIMIT 1
			) next
			WHERE w.n < $3
		)
		SELECT v.tenant_id, v.workflow, w.held_at IS NOT NULL OR ` + tenants.Stopped + ` OR ` + allPaused + `, p.polled_at, p.polled_at > ` + postgres.TxNow + ` - $4::interval,
			(SELECT sum(ticks - taken) FROM (SELECT ticks, taken FROM ready WHERE tenant_id = v.tenant_id AND workflow = v.workflow LIMIT 20) r)::bigint
		FROM waiting v
		CROSS JOIN LATERAL (SELECT halted_at, status FROM tenant WHERE id = v.tenant_id OFFSET 0) t
		CROSS JOIN LATERAL (SELECT tenant_id, name, held_at FROM workflow WHERE tenant_id = v.tenant_id AND name = v.workflow AND endpoint IS NULL OFFSET 0) w
		LEFT JOIN LATERAL (SELECT polled_at FROM workflow_poll WHERE tenant_id = v.tenant_id AND workflow = v.workflow OFFSET 0) p ON true
		ORDER BY v.tenant_id, v.workflow`

// lookForWorkers judges the pulled workflows of which ticks wait, and then those that were found without workers before.
func (w *Watcher) lookForWorkers(ctx context.Context) error {
	unmet := map[place]bool{}
	quiet := map[place]bool{} // held or paused, or of a tenant that does not fire
	for at := (place{}); ; {
		last, n, err := w.waiting(ctx, at, unmet, quiet)
		if err != nil || n < mostWatched {
			if err == nil {
				err = w.recoverWorkers(ctx, unmet, quiet)
			}
			return err
		}
		at = last
	}
}

// waiting judges one batch of workflows of which ticks wait. It returns the last one, and how many there were.
func (w *Watcher) waiting(ctx context.Context, after place, unmet, quiet map[place]bool) (last place, n int, err error) {
	rows, _ := w.pool.Query(ctx, waitingWorkflows, after.Tenant, after.Workflow, mostWatched, noPollFor) // ForEachRow reports the error
	var verdicts []verdict
	var stopped bool
	var polled *bool
	var at *time.Time
	var ready *int64
	_, err = pgx.ForEachRow(rows, []any{&last.Tenant, &last.Workflow, &stopped, &at, &polled, &ready}, func() error {
		n++
		switch {
		case stopped:
			quiet[last] = true
		case polled == nil || !*polled:
			unmet[last] = true
			data := noWorkersData{Workflow: last.Workflow, PolledAt: at}
			if ready != nil {
				data.Ready = *ready
			}
			verdicts = append(verdicts, verdict{place: last, event: tenants.WorkflowNoWorkers, unmet: true, data: data, confirmed: confirmed})
		}
		return nil
	})
	if err != nil {
		return last, n, fmt.Errorf("look for ticks that no worker polls for: %w", err)
	}
	return last, n, w.record(ctx, verdicts)
}

// recoverWorkers ends the verdicts of workflows that have workers again, or nothing to do.
func (w *Watcher) recoverWorkers(ctx context.Context, unmet, quiet map[place]bool) error {
	rows, _ := w.pool.Query(ctx, `SELECT tenant_id, workflow FROM unmet_expectation WHERE event = $1 LIMIT $2`, tenants.WorkflowNoWorkers, mostUnmet) // CollectRows reports the error
	known, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
	if err != nil {
		return fmt.Errorf("read workflows without workers: %w", err)
	}
	var over []verdict
	for _, one := range known {
		if !unmet[one] && !quiet[one] {
			over = append(over, verdict{place: one, event: tenants.WorkflowNoWorkers, met: true})
		}
	}
	return w.record(ctx, over)
}
