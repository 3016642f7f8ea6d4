package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/tenants"
)

// A tick whose endpoint is held or disabled, or whose tenant is halted or suspended, is parked: its row in held stays as it is until
// the tick expires, or until the change that ends the wait wakes it (wakeParked). Many parked ticks cost as little as one.

// parking is a tick that is to be parked.
type parking struct {
	try
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
	tries := make([]try, len(parked))
	var workflows []string
	for i, p := range parked {
		if tries[i] = p.try; !slices.Contains(workflows, p.workflow) {
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
		underWay[s.key()] = s
	}
	holds := make([]hold, len(parked))
	for i, p := range parked {
		h := hold{try: p.try, shard: p.shard, why: "endpoint", due: now}
		r := &routes[slices.Index(workflows, p.workflow)]
		s := underWay[p.TickKey]
		switch {
		case !shared || s == nil:
			h.due = now.Add(contendedWait)
		case halted: // nothing ends while its tenant is stopped
			h.why, h.due, h.waitsFor = "halted", never, new("")
		case r.endpoint != nil && r.endpoint.shut():
			h.due, h.waitsFor = never, &r.endpoint.name
			if latest, expires := s.latest(r.terms); expires {
				h.due = latest.Add(time.Millisecond)
			}
		}
		holds[i] = h
	}
	return insertHolds(ctx, tx, tenant, holds)
}
