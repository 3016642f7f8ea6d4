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

// DueChannel is the PostgreSQL notification channel on which the number of a shard says that something in it is due
// before the next look of its sweeper.
const DueChannel = "carillon_due"

// Soon is how near a due time must be for its shard's sweeper to be woken: sweepers look that often by themselves.
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

// MakeCohort makes a cohort, or wakes one that has no next time. The caller has not found it awake.
func MakeCohort(ctx context.Context, tx pgx.Tx, of Shared, stamp Stamp, now time.Time) (id int64, err error) {
	t := of.Timing
	hash := t.Hash()
	next, _ := t.Next(now)
	// Two that make the same cohort at once wait for one another here; the second finds it awake.
	err = tx.QueryRow(ctx, `
		WITH n AS (`+NameCohort+`)
		INSERT INTO cohort AS c (id, shard, tenant_id, workflow, hash, missed, ordered, next_at, due_at, calendars, revision, tzdata)
		SELECT n.id, n.shard, n.tenant_id, n.workflow, n.hash, n.missed, n.ordered, $7::timestamptz, `+NotPast("$8::timestamptz")+`, $9::text[], $10::bigint, $11::text
		FROM n
		ON CONFLICT (shard, id) DO UPDATE
		SET revision = CASE WHEN c.due_at IS NULL THEN excluded.revision ELSE c.revision END,
		    tzdata = CASE WHEN c.due_at IS NULL THEN excluded.tzdata ELSE c.tzdata END,
		    next_at = CASE WHEN c.due_at IS NULL THEN excluded.next_at ELSE c.next_at END,
		    due_at = COALESCE(c.due_at, excluded.due_at),
		    empty_at = NULL
		RETURNING id`,
		of.Shard, of.Tenant, of.Workflow, hash[:], of.Missed, string(t.Canonical()), next.At, t.Due(next.At), t.Named(), stamp.Revision, stamp.TZData).Scan(&id)
	return id, err
}

// NotPast is an SQL expression for a due time that is written: it is no earlier than the clock. Looks rely on it: they begin where
// an earlier look ended, and would not find an earlier time.
func NotPast(due string) string {
	return `(CASE WHEN ` + due + ` < ` + postgres.Now + ` THEN ` + postgres.Now + ` ELSE ` + due + ` END)`
}

// fewSchedules is how many schedules a tenant has before its new cohorts are kept in the order of their next times: those made
// before are few enough to be read and sorted.
const fewSchedules = 2000

// NameCohort finds the number of a cohort by what names it, or gives it one, and keeps others from it until the transaction
// ends. $6 is the timing. How many schedules the tenant has is what the last second's count says.
var NameCohort = fmt.Sprintf(`
			INSERT INTO cohort_timing AS t (shard, tenant_id, workflow, hash, missed, timing, ordered)
			VALUES ($1, $2, $3, $4, $5, $6, EXISTS (SELECT FROM tally WHERE tenant_id = $2 AND cohort_id = 0 AND n >= %d))
			ON CONFLICT ON CONSTRAINT cohort_timing_pkey DO UPDATE
			SET timing = t.timing
			RETURNING id, shard, tenant_id, workflow, hash, missed, ordered`, fewSchedules)

// ByNextTime finds the cohorts of tenant $1 by their next times: those that are kept in that order, and the few that are not.
// The query of either is made of where cohorts d with some columns are found, in the order of next_at and id, and of what holds
// for them, and is ordered and limited by itself, as the two together are to be: the planner does not walk two sources in one
// order.
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
