package sweep

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// workflowName names a workflow.
type workflowName struct {
	tenant tenants.ID
	name   string
}

// nowAndHeld reads the clock, whether any workflow is held, and whether any has a rate, the latter by one entry of an index each.
const nowAndHeld = `SELECT ` + postgres.Now + `, EXISTS (SELECT FROM workflow WHERE held_at IS NOT NULL), EXISTS (SELECT FROM workflow WHERE rate IS NOT NULL)`

// setAside sets the cohorts of held workflows aside, and returns the others. No run of such a cohort begins or goes on. The release makes
// the cohort due again: it waits for this sweep, because both take the lock of parking. A cohort whose tenant is being changed is looked at
// again soon.
func (p *pass) setAside(ctx context.Context, all []*due) ([]*due, error) {
	if !p.aside.held || len(all) == 0 {
		return all, nil
	}
	held, err := p.heldOf(ctx, all)
	if err != nil || len(held) == 0 {
		return all, err
	}
	var owners []int32
	for name := range held {
		if owner := int32(name.tenant); !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
	}
	slices.Sort(owners)
	rows, _ := p.tx.Query(ctx, `SELECT id FROM unnest($2::int[]) AS n (id) WHERE pg_try_advisory_xact_lock_shared($1, id)`, postgres.ParkLocks, owners) // CollectRows reports the error
	shared, err := pgx.CollectRows(rows, pgx.RowTo[tenants.ID])
	if err != nil {
		return nil, fmt.Errorf("lock tenants with held workflows: %w", err)
	}
	still, err := p.heldOf(ctx, all) // under the lock
	if err != nil {
		return nil, err
	}
	var aside, later []int64
	others := all[:0]
	for _, c := range all {
		name := workflowName{c.TenantID, string(c.Workflow)}
		switch {
		case !held[name] && !still[name]:
			others = append(others, c)
		case !slices.Contains(shared, c.TenantID):
			later = append(later, c.ID)
		case still[name]:
			aside = append(aside, c.ID)
		default:
			others = append(others, c)
		}
	}
	p.made.chunks.Along.Queue(`UPDATE cohort SET due_at = 'infinity', held = true, throttled_at = NULL, paced = false WHERE shard = $1 AND id = ANY($2)`, p.shard, aside)
	p.made.chunks.Along.Queue(`UPDATE cohort SET due_at = `+cohorts.NotPast("$3::timestamptz")+`, throttled_at = NULL, paced = false WHERE shard = $1 AND id = ANY($2)`, p.shard, later, p.now.Add(heldLook))
	return others, nil
}

const heldLook = time.Second // until the next look at a cohort whose workflow is being held or released

// heldOf returns the held workflows among those of cohorts.
func (p *pass) heldOf(ctx context.Context, all []*due) (map[workflowName]bool, error) {
	held, err := p.workflowsWith(ctx, `held_at IS NOT NULL`, all)
	if err != nil {
		return nil, fmt.Errorf("read held workflows: %w", err)
	}
	return held, nil
}

// workflowsWith returns the workflows of cohorts for which a condition holds.
func (p *pass) workflowsWith(ctx context.Context, condition string, all []*due) (map[workflowName]bool, error) {
	seen := map[workflowName]bool{}
	var owners []int32
	var names []string
	for _, c := range all {
		if name := (workflowName{c.TenantID, string(c.Workflow)}); !seen[name] {
			seen[name] = true
			owners, names = append(owners, int32(c.TenantID)), append(names, string(c.Workflow))
		}
	}
	rows, _ := p.tx.Query(ctx, `
		SELECT w.tenant_id, w.name
		FROM unnest($1::int[], $2::text[]) AS n (tenant_id, name)
		CROSS JOIN LATERAL (SELECT tenant_id, name FROM workflow WHERE tenant_id = n.tenant_id AND name = n.name AND `+condition+` OFFSET 0) w`, owners, names) // ForEachRow reports the error
	found := map[workflowName]bool{}
	var tenant tenants.ID
	var name string
	_, err := pgx.ForEachRow(rows, []any{&tenant, &name}, func() error { found[workflowName{tenant, name}] = true; return nil })
	return found, err
}
