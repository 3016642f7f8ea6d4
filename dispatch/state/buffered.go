package state

import (
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// Release hands out an own tick that was buffered: of tenant $1 and schedule $2, at nominal time $3 with number $4. $5 says whether it
// is a timed tick, which then moves the sequence. It is an UPDATE that returns prev_at, the nominal time of the timed tick before, and
// occurrence, the number of the last timed tick.
const Release = `
			UPDATE schedule_state
			SET buffered = buffered - 1, live = live + 1, fired = fired + 1, live_at = $3, live_seq = $4, seen_at = COALESCE(seen_at, last_at),
				prev_at = last_at, last_at = CASE WHEN $5 THEN $3 ELSE last_at END, occurrence = occurrence + CASE WHEN $5 THEN 1 ELSE 0 END
			WHERE tenant_id = $1 AND schedule_id = $2
			RETURNING prev_at, occurrence`

// ReleaseAside hands out a tick aside that was buffered. again says that it was handed out before, and is not counted as fired twice.
func ReleaseAside(b *pgx.Batch, s Schedule, again bool) {
	b.Queue(`
			UPDATE schedule_state
			SET aside_buffered = GREATEST(0, aside_buffered - 1), aside = aside + 1, fired = fired + CASE WHEN $3 THEN 0 ELSE 1 END
			WHERE tenant_id = $1 AND schedule_id = $2`, s.Tenant, s.ID, again)
}

// Expire skips own buffered ticks that are too late, one for each of schedules.
func Expire(b *pgx.Batch, tenant tenants.ID, schedules []int64) {
	b.Queue(`
			UPDATE schedule_state st
			SET buffered = st.buffered - i.n, skipped = st.skipped + i.n
			FROM (SELECT id, count(*)::int AS n FROM unnest($2::bigint[]) AS l (id) GROUP BY id) i
			WHERE st.tenant_id = $1 AND st.schedule_id = i.id`, tenant, schedules)
}

// Supersede skips own buffered ticks of tenant $1 that newer ticks replace. It is an UPDATE that reads their schedules from a relation
// gone (schedule_id), which has one row for each tick.
const Supersede = `
			UPDATE schedule_state st
			SET buffered = st.buffered - g.n, skipped = st.skipped + g.n
			FROM (SELECT schedule_id, count(*)::int AS n FROM gone GROUP BY schedule_id) g
			WHERE st.tenant_id = $1 AND st.schedule_id = g.schedule_id`

// Withdraw cancels a buffered tick of schedule $2 of tenant $1. It is an UPDATE that reads from a relation gone (aside) whether the tick
// would have run aside; gone is empty if the tick was not buffered.
const Withdraw = `
		UPDATE schedule_state st
		SET buffered = st.buffered - CASE WHEN gone.aside THEN 0 ELSE 1 END, aside_buffered = st.aside_buffered - CASE WHEN gone.aside THEN 1 ELSE 0 END
		FROM gone
		WHERE st.tenant_id = $1 AND st.schedule_id = $2`
