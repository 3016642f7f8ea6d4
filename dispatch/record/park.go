package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// A tick whose endpoint is held or disabled, or whose tenant is halted or suspended, is parked: its row in held stays as it is until
// the tick expires, or until the change that ends the wait wakes it (wakeParked). Many parked ticks cost as little as one.

// parking is a tick that is to be parked.
type Parking struct {
	Try
	Shard    int16
	Workflow string
}

const (
	ParkLocks = 0x4341_524b // the class of advisory locks of who parks, and of changes that end a wait; triggers name it too
	// contendedWait is how long a tick waits for its next look while a change that may end its wait is being committed.
	ContendedWait = time.Second
)

// never is when a parked tick expires that does not expire.
var Never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// shareParking keeps changes that end a wait of a tenant's from being committed until tx ends. It is false while one is being
// made: nobody waits for it here, since it may wait for rows that tx has locked.
func ShareParking(ctx context.Context, tx pgx.Tx, tenant tenants.ID) (shared bool, err error) {
	err = tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock_shared($1, $2)`, ParkLocks, tenant).Scan(&shared)
	return shared, err
}

// parkedFor is what ticks of a tenant are parked for: an endpoint by its name, or that the tenant goes on.
type ParkedFor struct {
	Tenant tenants.ID
	For    string
}
