package record

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Held is a tick that is kept for a later moment: to be sent, or its answer to be looked for.
type Held struct {
	Try
	Shard    int16
	Why      string
	Due      time.Time
	WaitsFor *string // what it is parked for; nil: it is not parked
}

// InsertHeld writes ticks of a tenant that are kept for later, in one round trip.
func InsertHeld(ctx context.Context, tx pgx.Tx, tenant tenants.ID, holds []Held) error {
	if len(holds) == 0 {
		return nil
	}
	var b pgx.Batch
	QueueAllHeld(&b, tenant, holds)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("hold ticks: %w", err)
	}
	return nil
}

// QueueHeld keeps a tick to be sent, or its answer to be looked for, at a later moment.
func QueueHeld(b *pgx.Batch, tenant tenants.ID, shard int16, t Try, why string, due time.Time) {
	QueueAllHeld(b, tenant, []Held{{Try: t, Shard: shard, Why: why, Due: due}})
}

// QueueAllHeld writes holds in one statement. Of two of one tick the last counts.
func QueueAllHeld(b *pgx.Batch, tenant tenants.ID, holds []Held) {
	if len(holds) == 0 {
		return
	}
	var keys Keys
	var shards []int16
	var whys []string
	var dues []time.Time
	var waitsFor []*string
	for _, h := range holds {
		keys.Add(h.TickKey, h.Attempt)
		shards, whys, dues, waitsFor = append(shards, h.Shard), append(whys, h.Why), append(dues, h.Due), append(waitsFor, h.WaitsFor)
	}
	b.Queue(`
		INSERT INTO held (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at, waits_for)
		SELECT DISTINCT ON (id, at, seq) $1::int, id, at, seq, attempt, shard, why, `+cohorts.NotPast("due")+`, waits_for
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $6::smallint[], $7::text[], $8::timestamptz[], $9::text[])
			WITH ORDINALITY AS h (id, at, seq, attempt, shard, why, due, waits_for, ord)
		ORDER BY id, at, seq, ord DESC
		ON CONFLICT (tenant_id, schedule_id, nominal_at, seq) DO UPDATE
		SET attempt = excluded.attempt, why = excluded.why, due_at = excluded.due_at, waits_for = excluded.waits_for`,
		tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, shards, whys, dues, waitsFor)
}

// untilAt is the last nominal time of a schedule s, for a tick at a moment: nothing more comes of one that is no
// member any more. It is looked up for those alone that have a limit of ticks.
func UntilAt(moment string) string {
	return `CASE WHEN s.ticks_left IS NOT NULL THEN COALESCE((
					SELECT m.until_at
					FROM member m
					WHERE m.cohort_id = s.cohort_id AND m.spread = s.spread AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id), ` + moment + `) END`
}

// queueOver says of cohorts of a shard that upkeep is to complete their schedules.
func QueueOver(b *pgx.Batch, shard int16, cohorts []int64) {
	if len(cohorts) > 0 {
		b.Queue(`UPDATE cohort SET over = true WHERE shard = $1 AND id = ANY($2)`, shard, cohorts)
	}
}

const (
	NewerWait = time.Minute // how long rows that a newer program wrote are put off
)

const (
	MostCleared = 5000
)
