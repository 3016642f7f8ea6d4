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
	b.Queue(`INSERT INTO daily_use_delta (tenant_id, workflow, day, minute, bytes) VALUES ($1, $2, $3, $4, $5)`, tenant, workflow, DayOf(now), now, bytes)
}

// Day is the length of a UTC day.
const Day = 24 * time.Hour

// DayOf returns the UTC day of a moment.
func DayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// UseEntries are counts of ticks by tenant, workflow and minute, which Queue adds to the use of those days and to the series.
type UseEntries struct {
	counts map[useName]*useCount
	name   useName // of the last tick, with its count: the next one mostly has the same
	last   *useCount
}

type useName struct {
	tenant   tenants.ID
	workflow string
	minute   int64 // since 1970
	bucket   int16
	reason   Reason
}

type useCount struct {
	ticks, due, fired, cancelled, skipped, missed int64
	firstDue                                      int16 // when the first due tick that is not skipped was recorded: a second of the minute
}

// count returns the counts of a name.
func (u *UseEntries) count(name useName) *useCount {
	if u.last != nil && u.name == name {
		return u.last
	}
	n := u.counts[name]
	if n == nil {
		if u.counts == nil {
			u.counts = map[useName]*useCount{}
		}
		n = &useCount{firstDue: NoBucket}
		u.counts[name] = n
	}
	u.name, u.last = name, n
	return n
}

// Add counts ticks that are recorded now, those of them that are handed out, and those that are already skipped or cancelled. A timed
// tick was due in the minute of its nominal time.
func (u *UseEntries) Add(tenant tenants.ID, now time.Time, ticks []Tick) {
	minute := minuteOf(now)
	for i := range ticks {
		t := &ticks[i]
		name := useName{tenant: tenant, workflow: t.Workflow, minute: minute, bucket: NoBucket}
		switch t.State {
		case Skipped:
			name.reason = t.Reason
		case Running:
			name.bucket = t.lateBucket()
		}
		n := u.count(name)
		n.ticks++
		n.missed += int64(t.MissedCount)
		switch t.State {
		case Skipped:
			n.skipped++
		case Cancelled:
			n.cancelled++
		case Running:
			n.fired++
		}
		if t.Later() {
			continue
		}
		if t.State != Skipped && t.State != Cancelled {
			n.recordedAt(now)
		}
		if due := t.dueMinute(minute); due != minute {
			n = u.count(useName{tenant: tenant, workflow: t.Workflow, minute: due, bucket: NoBucket})
		}
		n.due++
	}
}

// recordedAt notes the second at which a tick that became due was recorded. The timeout of a tick that waited for a release begins then.
func (n *useCount) recordedAt(now time.Time) {
	if second := int16(now.Unix() % 60); n.firstDue == NoBucket || second < n.firstDue {
		n.firstDue = second
	}
}

// Queue inserts the counts.
func (u *UseEntries) Queue(b *pgx.Batch) {
	if len(u.counts) == 0 {
		return
	}
	var owners []int32
	var workflows []string
	var minutes []time.Time
	var ticks, cancelled, skipped, missed []int64
	var buckets, reasons []int16
	var due, fired []int64
	var firstDue []int16
	for name, n := range u.counts {
		owners, workflows, minutes = append(owners, int32(name.tenant)), append(workflows, name.workflow), append(minutes, time.Unix(60*name.minute, 0))
		ticks, cancelled = append(ticks, n.ticks), append(cancelled, n.cancelled)
		skipped, missed = append(skipped, n.skipped), append(missed, n.missed)
		buckets, reasons = append(buckets, name.bucket), append(reasons, int16(name.reason))
		due, fired, firstDue = append(due, n.due), append(fired, n.fired), append(firstDue, n.firstDue)
	}
	b.Queue(`
		INSERT INTO daily_use_delta (tenant_id, workflow, day, minute, ticks, cancelled, skipped, missed, bucket, reason, due, fired, first_due)
		SELECT o, w, (m AT TIME ZONE 'UTC')::date, m, t, c, s, l, b, r, d, f, NULLIF(e, -1)
		FROM unnest($1::int[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::smallint[], $9::smallint[],
			$10::bigint[], $11::bigint[], $12::smallint[]) AS n (o, w, m, t, c, s, l, b, r, d, f, e)`,
		owners, workflows, minutes, ticks, cancelled, skipped, missed, buckets, reasons, due, fired, firstDue)
}

// QueueUse adds ticks of a tenant that are recorded now to the use of the day.
func QueueUse(b *pgx.Batch, tenant tenants.ID, now time.Time, ticks []Tick) {
	var u UseEntries
	u.Add(tenant, now, ticks)
	u.Queue(b)
}

// EndedUse returns an INSERT that adds ended ticks of a tenant to the use of the day and the minute of a moment, at. from has rows i (id,
// due, fired, good, bad, gone, skipped, retried, bytes, bucket, reason), one a schedule; bucket is that of the time to the end, or of the
// lateness of a tick that was handed out. Revisions say which workflow a deleted schedule had. Schedules are looked up by key, one by
// one, whatever the planner knows of the table.
func EndedUse(tenant, at, from string) string {
	return strings.NewReplacer("TENANT", tenant, "MOMENT", at, "FROM_I", from).Replace(`
		INSERT INTO daily_use_delta (tenant_id, workflow, day, minute, bucket, reason, due, fired, succeeded, failed, cancelled, skipped, retried, bytes)
		SELECT TENANT, CASE WHEN s.id IS NULL THEN r.workflow ELSE s.workflow END, (MOMENT AT TIME ZONE 'UTC')::date, date_bin('1 minute', MOMENT, '2000-01-01Z'), i.bucket, i.reason,
			sum(i.due), sum(i.fired), sum(i.good), sum(i.bad), sum(i.gone), sum(i.skipped), sum(i.retried), sum(i.bytes)
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
		GROUP BY 1, 2, 3, 4, 5, 6`)
}

// QueueEndedUse adds waiting ticks that ended, one for each of ids, to the use of the day: as skipped for a reason, or as cancelled.
func QueueEndedUse(b *pgx.Batch, tenant tenants.ID, now time.Time, state State, reason Reason, ids ...int64) {
	if state != Skipped {
		reason = NoReason
	}
	b.Queue(EndedUse("$1", "$2::timestamptz", `(
			SELECT id, 0 AS due, 0 AS fired, 0 AS good, 0 AS bad, CASE WHEN $4 THEN 0 ELSE 1 END AS gone, CASE WHEN $4 THEN 1 ELSE 0 END AS skipped, 0 AS retried,
				0 AS bytes, $6::smallint AS bucket, $5::smallint AS reason
			FROM unnest($3::bigint[]) AS n (id)
		) i`), tenant, now, ids, state == Skipped, int16(reason), NoBucket)
}

// QueueRetriedUse adds attempts after which another one follows, one for each of ids, to the use of the minute.
func QueueRetriedUse(b *pgx.Batch, tenant tenants.ID, now time.Time, ids []int64) {
	if len(ids) == 0 {
		return
	}
	b.Queue(EndedUse("$1", "$2::timestamptz", `(
			SELECT id, 0 AS due, 0 AS fired, 0 AS good, 0 AS bad, 0 AS gone, 0 AS skipped, 1 AS retried, 0 AS bytes, $4::smallint AS bucket, 0::smallint AS reason
			FROM unnest($3::bigint[]) AS n (id)
		) i`), tenant, now, ids, NoBucket)
}

// QueueFiredUse adds a tick that was recorded before, and is handed out now, to the use of the minute. A manual tick that waited for its
// time becomes due with it.
func QueueFiredUse(b *pgx.Batch, tenant tenants.ID, now time.Time, t *Tick) {
	due := 0
	if t.Later() {
		due = 1
	}
	b.Queue(EndedUse("$1", "$2::timestamptz", `(
			SELECT $3::bigint AS id, $5::int AS due, 1 AS fired, 0 AS good, 0 AS bad, 0 AS gone, 0 AS skipped, 0 AS retried, 0 AS bytes, $4::smallint AS bucket, 0::smallint AS reason
		) i`), tenant, now, t.ScheduleID, t.lateBucket(), due)
}

// Quotas returns the quotas of a tenant, or an error after a second at most: each push asks it.
type Quotas func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
