package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// slotName names one slot of a lease, as a token does.
type slotName struct {
	lease int64
	slot  int16
}

// lockedLease is a lease that no other transaction ends before this one ends.
type lockedLease struct {
	until  time.Time
	began  time.Time
	worker string
}

// lockedLeases are the locked leases of some tokens. now is the time of the read.
type lockedLeases struct {
	now   time.Time
	held  map[int64]lockedLease
	beats map[slotName]time.Time // the new end of each slot that a heartbeat has lengthened
}

// until returns when the lease of a token's slot ends. ok is false if the lease is gone.
func (l lockedLeases) until(t message.Token) (at time.Time, ok bool) {
	if at, ok = l.beats[slotName{t.Lease, t.Slot}]; ok {
		return at, true
	}
	lease, ok := l.held[t.Lease]
	return lease.until, ok
}

// lockLeases locks the leases of tokens against being ended. Other transactions may finish ticks of the same leases meanwhile.
func lockLeases(ctx context.Context, tx pgx.Tx, tenant tenants.ID, tokens []message.Token) (lockedLeases, error) {
	var ids []int64
	seen := map[int64]bool{}
	for _, t := range tokens {
		if t.Lease != 0 && !seen[t.Lease] {
			ids, seen[t.Lease] = append(ids, t.Lease), true
		}
	}
	l := lockedLeases{held: map[int64]lockedLease{}, beats: map[slotName]time.Time{}}
	var b pgx.Batch
	b.Queue(postgres.GenericPlans)
	b.Queue(`SELECT id, until_at, leased_at, worker FROM lease WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR KEY SHARE`, tenant, ids).Query(func(rows pgx.Rows) error {
		var id int64
		var one lockedLease
		_, err := pgx.ForEachRow(rows, []any{&id, &one.until, &one.began, &one.worker}, func() error {
			l.held[id] = one
			return nil
		})
		return err
	})
	b.Queue(`SELECT lease_id, slot, until_at FROM lease_beat WHERE lease_id = ANY($1)`, ids).Query(func(rows pgx.Rows) error {
		var name slotName
		var end time.Time
		_, err := pgx.ForEachRow(rows, []any{&name.lease, &name.slot, &end}, func() error {
			l.beats[name] = end
			return nil
		})
		return err
	})
	b.Queue(`SELECT ` + postgres.Now).QueryRow(func(row pgx.Row) error { return row.Scan(&l.now) })
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return l, fmt.Errorf("lock leases: %w", err)
	}
	l.now = l.now.UTC()
	return l, nil
}
