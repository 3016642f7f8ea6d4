package lease

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// endUnwanted ends those of the ticks about to be leased that were told to stop before anybody had them, and those whose
// deadline has passed.
func (ls *Leases) endUnwanted(ctx context.Context, tx pgx.Tx, tenant tenants.ID, found []*record.Sendable, terms map[string]record.WorkflowTerms) (left []*record.Sendable, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return nil, err
	}
	var endings []finish.Ending
	for _, s := range found {
		if e, over := finish.Unwanted(s, terms[s.Workflow].Terms, now); over {
			endings = append(endings, e)
			continue
		}
		left = append(left, s)
	}
	if len(endings) == 0 {
		return left, nil
	}
	_, err = ls.finish.End(ctx, tx, tenant, now.UTC(), endings)
	return left, err
}
