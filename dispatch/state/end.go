package state

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// End counts running ticks that ended, of schedules $2 of tenant $1: how many of each succeeded ($3) and failed ($4), and how many of
// all that ended were its own ($5) and ran aside ($6). The schedules are in rising order, so that two transactions lock them in one
// order. It is an UPDATE that returns for each schedule:
//
//	its id
//	how many ticks failed in a row; 0 if none failed now, and Recovered if one succeeded now after failures
//	whether a buffered tick may be handed out: nothing runs aside, and either no own tick runs and one waits, or one aside waits
//	delay_at
const End = `
		UPDATE schedule_state st
		SET live = GREATEST(0, st.live - i.own), aside = GREATEST(0, st.aside - i.aside),
			succeeded = st.succeeded + i.good, failed = st.failed + i.bad,
			failures = CASE WHEN i.good > 0 THEN 0 ELSE st.failures + i.bad END,
			decision = CASE WHEN i.good > 0 AND st.failures > 0 THEN 3 ELSE 4 END
		FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[]) AS i (id, good, bad, own, aside)
		WHERE st.tenant_id = $1 AND st.schedule_id = i.id
		RETURNING st.schedule_id, CASE WHEN st.decision = 3 THEN -1 WHEN i.bad > 0 THEN st.failures ELSE 0 END,
			st.aside = 0 AND (st.live = 0 AND st.buffered > 0 OR st.aside_buffered > 0), st.delay_at`

// Recovered is what End returns instead of the number of failures if a tick succeeded after failures.
const Recovered = -1

// ListFailing adds schedules of a tenant to the table of failing schedules and takes others from it. The transaction has ended ticks of all
// of them: with the first failure of the former, and with a success after failures of the latter.
func ListFailing(ctx context.Context, tx pgx.Tx, tenant tenants.ID, failed, recovered []int64) error {
	var b pgx.Batch
	if len(failed) > 0 {
		b.Queue(`
			INSERT INTO failing (tenant_id, schedule_id, workflow, key)
			SELECT tenant_id, id, workflow, key FROM schedule WHERE tenant_id = $1 AND id = ANY ($2)
			ON CONFLICT DO NOTHING`, tenant, failed)
	}
	if len(recovered) > 0 {
		b.Queue(`DELETE FROM failing WHERE tenant_id = $1 AND schedule_id = ANY ($2)`, tenant, recovered)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("list failing schedules: %w", err)
	}
	return nil
}
