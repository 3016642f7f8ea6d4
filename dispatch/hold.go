package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// hold is a tick that is kept for a later moment: to be sent, or its answer to be looked for.
type hold struct {
	try
	shard    int16
	why      string
	due      time.Time
	waitsFor *string // what it is parked for; nil: it is not parked
}

func insertHolds(ctx context.Context, tx pgx.Tx, tenant tenants.ID, holds []hold) error {
	if len(holds) == 0 {
		return nil
	}
	var b pgx.Batch
	queueHolds(&b, tenant, holds)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("hold ticks: %w", err)
	}
	return nil
}

// queueHold keeps a tick to be sent, or its answer to be looked for, at a later moment.
func queueHold(b *pgx.Batch, tenant tenants.ID, shard int16, t try, why string, due time.Time) {
	queueHolds(b, tenant, []hold{{try: t, shard: shard, why: why, due: due}})
}

// queueHolds writes holds in one statement. Of two of one tick the last counts.
func queueHolds(b *pgx.Batch, tenant tenants.ID, holds []hold) {
	if len(holds) == 0 {
		return
	}
	var keys keyArrays
	var shards []int16
	var whys []string
	var dues []time.Time
	var waitsFor []*string
	for _, h := range holds {
		keys.add(h.TickKey, h.Attempt)
		shards, whys, dues, waitsFor = append(shards, h.shard), append(whys, h.why), append(dues, h.due), append(waitsFor, h.waitsFor)
	}
	b.Queue(`
		INSERT INTO held (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at, waits_for)
		SELECT DISTINCT ON (id, at, seq) $1::int, id, at, seq, attempt, shard, why, `+cohorts.NotPast("due")+`, waits_for
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $6::smallint[], $7::text[], $8::timestamptz[], $9::text[])
			WITH ORDINALITY AS h (id, at, seq, attempt, shard, why, due, waits_for, ord)
		ORDER BY id, at, seq, ord DESC
		ON CONFLICT (tenant_id, schedule_id, nominal_at, seq) DO UPDATE
		SET attempt = excluded.attempt, why = excluded.why, due_at = excluded.due_at, waits_for = excluded.waits_for`,
		tenant, keys.ids, keys.at, keys.seqs, keys.tries, shards, whys, dues, waitsFor)
}
