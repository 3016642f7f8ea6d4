package record

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// QueueUsedBytes adds the bytes of a payload that a tick has of its own to the use of the day.
func QueueUsedBytes(b *pgx.Batch, tenant tenants.ID, workflow string, now time.Time, bytes int) {
	b.Queue(`INSERT INTO daily_use_delta (tenant_id, workflow, day, bytes) VALUES ($1, $2, $3, $4)`, tenant, workflow, DayOf(now), bytes)
}

// Day is the length of a UTC day.
const Day = 24 * time.Hour

// DayOf returns the UTC day of a moment.
func DayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// UseEntries are counts of ticks by tenant, workflow and day, which Queue adds to the use of those days.
type UseEntries map[useName]useCount

type useName struct {
	tenant   tenants.ID
	workflow string
	day      time.Time
}

type useCount struct{ ticks, cancelled, skipped, missed int64 }

// Add counts ticks that are recorded now, and those of them that are already skipped or cancelled.
func (u *UseEntries) Add(tenant tenants.ID, now time.Time, ticks []Tick) {
	if *u == nil {
		*u = UseEntries{}
	}
	name := useName{tenant: tenant, day: DayOf(now)}
	for i := range ticks {
		t := &ticks[i]
		name.workflow = t.Workflow
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

// Queue inserts the counts.
func (u UseEntries) Queue(b *pgx.Batch) {
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

// QueueUse adds ticks of a tenant that are recorded now to the use of the day.
func QueueUse(b *pgx.Batch, tenant tenants.ID, now time.Time, ticks []Tick) {
	var u UseEntries
	u.Add(tenant, now, ticks)
	u.Queue(b)
}

// EndedUse returns an INSERT that adds ended ticks of a tenant to the use of a day. from has rows i (id, good, bad, gone, skipped,
// bytes), one a schedule. Revisions say which workflow a deleted schedule had. Schedules are looked up by key, one by one, whatever
// the planner knows of the table.
func EndedUse(tenant, day, from string) string {
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

// QueueEndedUse adds waiting ticks that ended, one for each of ids, to the use of the day: as skipped, or as cancelled.
func QueueEndedUse(b *pgx.Batch, tenant tenants.ID, now time.Time, state State, ids ...int64) {
	b.Queue(EndedUse("$1", "$2::date", `(
			SELECT id, 0 AS good, 0 AS bad, CASE WHEN $4 THEN 0 ELSE 1 END AS gone, CASE WHEN $4 THEN 1 ELSE 0 END AS skipped, 0 AS bytes
			FROM unnest($3::bigint[]) AS n (id)
		) i`), tenant, DayOf(now), ids, state == Skipped)
}

// Quotas returns the quotas of a tenant, or an error after a second at most: each push asks it.
type Quotas func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
