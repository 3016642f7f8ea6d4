package dispatch

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// queueUsedBytes adds bytes that a tick stores beside to the use of the day.
func queueUsedBytes(b *pgx.Batch, tenant tenants.ID, workflow string, now time.Time, bytes int) {
	b.Queue(`INSERT INTO daily_use_delta (tenant_id, workflow, day, bytes) VALUES ($1, $2, $3, $4)`, tenant, workflow, dayOf(now), bytes)
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// useEntries are what is added to the use of days.
type useEntries map[useName]useCount

type useName struct {
	tenant   tenants.ID
	workflow string
	day      time.Time
}

type useCount struct{ ticks, cancelled, skipped, missed int64 }

// add counts ticks that are recorded now, with what of them ended at once.
func (u *useEntries) add(tenant tenants.ID, now time.Time, ticks []tick) {
	if *u == nil {
		*u = useEntries{}
	}
	name := useName{tenant: tenant, day: dayOf(now)}
	for i := range ticks {
		t := &ticks[i]
		name.workflow = t.workflow
		n := (*u)[name]
		n.ticks++
		n.missed += int64(t.MissedCount)
		switch t.State {
		case Skipped:
			n.skipped++
		case Cancelled:
			n.cancelled++
		}
		(*u)[name] = n
	}
}

// queue writes the counts.
func (u useEntries) queue(b *pgx.Batch) {
	if len(u) == 0 {
		return
	}
	var owners []int32
	var workflows []string
	var days []time.Time
	var ticks, cancelled, skipped, missed []int64
	for name, n := range u {
		owners, workflows, days = append(owners, int32(name.tenant)), append(workflows, name.workflow), append(days, name.day)
		ticks, cancelled = append(ticks, n.ticks), append(cancelled, n.cancelled)
		skipped, missed = append(skipped, n.skipped), append(missed, n.missed)
	}
	b.Queue(`
		INSERT INTO daily_use_delta (tenant_id, workflow, day, ticks, cancelled, skipped, missed)
		SELECT * FROM unnest($1::int[], $2::text[], $3::date[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])`,
		owners, workflows, days, ticks, cancelled, skipped, missed)
}

// queueUse adds ticks of a tenant that are recorded now to the use of the day.
func queueUse(b *pgx.Batch, tenant tenants.ID, now time.Time, ticks []tick) {
	var u useEntries
	u.add(tenant, now, ticks)
	u.queue(b)
}

// endedUse is an INSERT that adds ticks that ended to the use of a day: of rows i (id, good, bad, gone, skipped, bytes) a
// schedule each, of a tenant. Revisions tell what workflow a deleted one was of. Schedules are looked up by key, one by one,
// whatever the planner has heard of them.
func endedUse(tenant, day, from string) string {
	return strings.NewReplacer("TENANT", tenant, "DAY", day, "FROM_I", from).Replace(`
		INSERT INTO daily_use_delta (tenant_id, workflow, day, succeeded, failed, cancelled, skipped, bytes)
		SELECT TENANT, COALESCE(s.workflow, r.workflow), DAY, sum(i.good), sum(i.bad), sum(i.gone), sum(i.skipped), sum(i.bytes)
		FROM FROM_I
		LEFT JOIN LATERAL (SELECT id, workflow FROM schedule WHERE tenant_id = TENANT AND id = i.id OFFSET 0) s ON true
		LEFT JOIN LATERAL (
			SELECT workflow
			FROM revision
			WHERE s.id IS NULL AND tenant_id = TENANT AND schedule_id = i.id
			ORDER BY version DESC
			LIMIT 1
		) r ON true
		WHERE s.id IS NOT NULL OR r.workflow IS NOT NULL
		GROUP BY 1, 2, 3`)
}

// queueEndedUse adds ticks that waited and ended, a schedule each, to the use of the day: as skipped, or as cancelled.
func queueEndedUse(b *pgx.Batch, tenant tenants.ID, now time.Time, state State, ids ...int64) {
	b.Queue(endedUse("$1", "$2::date", `(
			SELECT id, 0 AS good, 0 AS bad, CASE WHEN $4 THEN 0 ELSE 1 END AS gone, CASE WHEN $4 THEN 1 ELSE 0 END AS skipped, 0 AS bytes
			FROM unnest($3::bigint[]) AS n (id)
		) i`), tenant, dayOf(now), ids, state == Skipped)
}
