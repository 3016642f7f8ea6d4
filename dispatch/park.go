package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// A tick whose endpoint is held or disabled, or whose tenant is halted or suspended, is parked: its row in held stays as it is until
// the tick expires, or until the change that ends the wait wakes it (wakeParked). Many parked ticks cost as little as one.

// parking is a tick that is to be parked.
type parking struct {
	record.Try
	shard    int16
	workflow string
}

const (
	parkLocks = 0x4341_524b // the class of advisory locks of who parks, and of changes that end a wait; triggers name it too
	// contendedWait is how long a tick waits for its next look while a change that may end its wait is being committed.
	contendedWait = time.Second
)

// never is when a parked tick expires that does not expire.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// shareParking keeps changes that end a wait of a tenant's from being committed until tx ends. It is false while one is being
// made: nobody waits for it here, since it may wait for rows that tx has locked.
func shareParking(ctx context.Context, tx pgx.Tx, tenant tenants.ID) (shared bool, err error) {
	err = tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock_shared($1, $2)`, parkLocks, tenant).Scan(&shared)
	return shared, err
}

// park parks ticks of a tenant. It comes last in a transaction: whoever changes the endpoint waits until that has ended.
func (d *Dispatch) park(ctx context.Context, tx pgx.Tx, tenant tenants.ID, parked []parking) error {
	if len(parked) == 0 {
		return nil
	}
	shared, err := shareParking(ctx, tx, tenant)
	if err != nil {
		return fmt.Errorf("park ticks: %w", err)
	}
	tries := make([]record.Try, len(parked))
	var workflows []string
	for i, p := range parked {
		if tries[i] = p.Try; !slices.Contains(workflows, p.workflow) {
			workflows = append(workflows, p.workflow)
		}
	}
	// Read under the lock, in statements of their own: what was read before it may have been changed since.
	routes, halted, now, err := d.routes(ctx, tx, tenant, workflows)
	if err != nil {
		return err
	}
	found, err := sendables(ctx, tx, tenant, tries)
	if err != nil {
		return err
	}
	underWay := make(map[ident.TickKey]*sendable, len(found))
	for _, s := range found {
		underWay[s.RowKey()] = s
	}
	holds := make([]record.Held, len(parked))
	for i, p := range parked {
		h := record.Held{Try: p.Try, Shard: p.shard, Why: "endpoint", Due: now}
		r := &routes[slices.Index(workflows, p.workflow)]
		s := underWay[p.TickKey]
		switch {
		case !shared || s == nil:
			h.Due = now.Add(contendedWait)
		case halted: // nothing ends while its tenant is stopped
			h.Why, h.Due, h.WaitsFor = "halted", never, new("")
		case r.endpoint != nil && r.endpoint.shut():
			h.Due, h.WaitsFor = never, &r.endpoint.name
			if latest, expires := s.latest(r.terms); expires {
				h.Due = latest.Add(time.Millisecond)
			}
		}
		holds[i] = h
	}
	return record.InsertHeld(ctx, tx, tenant, holds)
}
