package lease

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// queueTerms queues a read of the terms of workflows. A deleted workflow has the built-in terms. The error is a newerWorkflow if a newer
// program wrote the defaults of one.
func queueTerms(b *pgx.Batch, tenant tenants.ID, names []string, terms *map[string]record.WorkflowTerms) {
	all := make(map[string]record.WorkflowTerms, len(names))
	*terms = all
	for _, name := range names {
		all[name] = record.WorkflowTerms{Terms: policy.BuiltIn()}
	}
	b.Queue(`SELECT name, COALESCE(version, ''), past_versions, defaults, held_at IS NOT NULL FROM workflow WHERE tenant_id = $1 AND name = ANY($2)`, tenant, names).Query(func(rows pgx.Rows) error {
		var name string
		var version string
		var past, defaults []byte
		var held bool
		_, err := pgx.ForEachRow(rows, []any{&name, &version, &past, &defaults, &held}, func() error {
			terms, err := policy.OfWorkflow(defaults)
			if err != nil {
				return &newerWorkflow{name, err}
			}
			versions, err := record.ReadVersions(version, past)
			all[name] = record.WorkflowTerms{Terms: terms, Versions: versions, Held: held}
			return err
		})
		return err
	})
}

// readTerms reads the terms of the workflows of ticks.
func readTerms(ctx context.Context, tx pgx.Tx, tenant tenants.ID, found []*record.Sendable) (terms map[string]record.WorkflowTerms, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	var names []string
	for _, s := range found {
		if !slices.Contains(names, s.Workflow) {
			names = append(names, s.Workflow)
		}
	}
	var b pgx.Batch
	queueTerms(&b, tenant, names, &terms)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("read the terms of workflows: %w", err)
	}
	return terms, nil
}
