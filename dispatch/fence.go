package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// slotName is one slot of a lease as a token names it.
type slotName struct {
	lease int64
	slot  int16
}

// lockLeases keeps the leases of tokens from being ended, and tells until when each slot is leased; one that is not is
// missing. Others may finish ticks of the same leases meanwhile.
func lockLeases(ctx context.Context, tx pgx.Tx, tenant tenants.ID, tokens []leaseToken) (until map[slotName]time.Time, started map[int64]time.Time, workers map[int64]string, now time.Time, err error) {
	var ids []int64
	seen := map[int64]bool{}
	for _, t := range tokens {
		if t.lease != 0 && !seen[t.lease] {
			ids, seen[t.lease] = append(ids, t.lease), true
		}
	}
	until, started, workers = map[slotName]time.Time{}, map[int64]time.Time{}, map[int64]string{}
	ends, beats := map[int64]time.Time{}, map[slotName]time.Time{}
	var b pgx.Batch
	b.Queue(`SELECT id, until_at, leased_at, worker FROM lease WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR KEY SHARE`, tenant, ids).Query(func(rows pgx.Rows) error {
		var id int64
		var end, began time.Time
		var worker string
		_, err := pgx.ForEachRow(rows, []any{&id, &end, &began, &worker}, func() error {
			ends[id], started[id], workers[id] = end, began, worker
			return nil
		})
		return err
	})
	b.Queue(`SELECT lease_id, slot, until_at FROM lease_beat WHERE lease_id = ANY($1)`, ids).Query(func(rows pgx.Rows) error {
		var name slotName
		var end time.Time
		_, err := pgx.ForEachRow(rows, []any{&name.lease, &name.slot, &end}, func() error {
			beats[name] = end
			return nil
		})
		return err
	})
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, nil, now, fmt.Errorf("lock leases: %w", err)
	}
	for _, t := range tokens {
		name := slotName{t.lease, t.slot}
		if end, held := ends[t.lease]; held {
			until[name] = end
		}
		if end, beat := beats[name]; beat {
			until[name] = end
		}
	}
	return until, started, workers, now.UTC(), nil
}
