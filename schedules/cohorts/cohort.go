package cohorts

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// DueChannel is the PostgreSQL notification channel of sweepers. The payload is
// the number of a shard in which something is due before its sweeper looks again.
const DueChannel = "carillon_due"

// Soon is how near a due time must be to wake the sweeper of its shard. Sweepers look that often without being woken.
const Soon = 250 * time.Millisecond

// WakeSweep notifies the sweep of a shard once the transaction is committed.
func WakeSweep(ctx context.Context, tx pgx.Tx, shard int16) error {
	return postgres.Notify(ctx, tx, DueChannel, strconv.Itoa(int(shard)))
}

// Shared is what the members of a cohort have in common.
type Shared struct {
	Tenant   tenants.ID
	Shard    int16
	Workflow string
	Missed   string
	Timing   *calendar.Timing
}

// MakeCohort makes a cohort, or wakes one that has no next time. The caller has found no cohort that is awake.
func MakeCohort(ctx context.Context, tx pgx.Tx, of Shared, stamp Stamp, now time.Time) (id int64, err error) {
	t := of.Timing
	hash := t.Hash()
	next, _ := t.Next(now)
	// Two transactions that make the same cohort at the same time wait for one another here. The second one finds it awake.
	err = tx.QueryRow(ctx, `
		WITH n AS (`+NameCohort+`)
		INSERT INTO cohort AS c (id, shard, tenant_id, workflow, hash, missed, ordered, next_at, due_at, calendars, revision, tzdata)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, n.ordered, $7::timestamptz, `+NotPast("$8::timestamptz")+`, $9::text[], $10::bigint, $11::text
		FROM n
		ON CONFLICT (shard, id, tenant_id) DO UPDATE
		SET revision = CASE WHEN c.due_at IS NULL THEN excluded.revision ELSE c.revision END,
		    tzdata = CASE WHEN c.due_at IS NULL THEN excluded.tzdata ELSE c.tzdata END,
		    next_at = CASE WHEN c.due_at IS NULL THEN excluded.next_at ELSE c.next_at END,
		    due_at = COALESCE(c.due_at, excluded.due_at),
		    empty_at = NULL
		RETURNING id`,
		of.Shard, of.Tenant, of.Workflow, hash[:], of.Missed, string(t.Canonical()), next.At, t.Due(next.At), t.Named(), stamp.Revision, stamp.TZData).Scan(&id)
	return id, err
}

// NotPast returns an SQL expression for a due time to be stored: the time itself, or now if the time has passed. Each look for due
// cohorts begins where the last look ended, and would not find an earlier time.
func NotPast(due string) string {
	return `(CASE WHEN ` + due + ` < ` + postgres.Now + ` THEN ` + postgres.Now + ` ELSE ` + due + ` END)`
}

// fewSchedules is how many schedules a tenant must have before its new cohorts are kept in the order of their next times. The cohorts
// made before that are few enough to be read and sorted.
const fewSchedules = 2000

// NameCohort finds or inserts the cohort timing with a shard, tenant, workflow, hash and missed
// policy ($1 to $5), and returns the number of the cohort. It locks the row until the transaction
// ends. $6 is the timing. The number of the tenant's schedules comes from the last folded tally.
var NameCohort = fmt.Sprintf(`
			INSERT INTO cohort_timing AS t (shard, tenant_id, workflow, hash, missed, timing, ordered)
			VALUES ($1, $2, $3, $4, $5, $6, EXISTS (SELECT FROM tally WHERE tenant_id = $2 AND cohort_id = 0 AND n >= %d))
			ON CONFLICT ON CONSTRAINT cohort_timing_pkey DO UPDATE
			SET timing = t.timing
			RETURNING id, shard, tenant_id, workflow, hash, missed, ordered`, fewSchedules)

// ByNextTime returns a query for the cohorts of tenant $1 by their next times: those that are kept in that order, and the few that are
// not. query returns the statement for one of the two, given its FROM clause (cohorts d with the columns, in the order of next_at and id)
// and its condition. That statement must order and limit its rows in the same way as the caller orders and limits the union, because the
// planner does not read two sources in one order.
func ByNextTime(columns, where string, query func(from, where string) string) string {
	few := `(
				SELECT ` + columns + `
				FROM cohort_timing f
				JOIN cohort d ON d.shard = f.shard AND d.id = f.id AND d.tenant_id = $1
				WHERE f.tenant_id = $1 AND NOT f.ordered AND ` + where + `
				ORDER BY d.next_at, d.id
				OFFSET 0
			) d`
	return `(` + query("cohort d", "d.tenant_id = $1 AND d.ordered AND "+where) + `)
			UNION ALL
			(` + query(few, "true") + `)`
}
