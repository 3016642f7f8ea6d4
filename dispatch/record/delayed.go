package record

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Delayed is a tick that is due later, a row of delayed: at Due it is sent, or its awaited answer is overdue.
type Delayed struct {
	Try
	Shard    int16
	Why      string
	Due      time.Time
	WaitsFor *string // the name of the endpoint that it is parked for, or empty for the tenant; nil: it is not parked
}

// InsertDelayed writes delayed ticks of a tenant, in one round trip.
func InsertDelayed(ctx context.Context, tx pgx.Tx, tenant tenants.ID, holds []Delayed) error {
	if len(holds) == 0 {
		return nil
	}
	var b pgx.Batch
	QueueAllDelayed(&b, tenant, holds)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("hold ticks: %w", err)
	}
	return nil
}

// QueueDelayed writes one delayed tick.
func QueueDelayed(b *pgx.Batch, tenant tenants.ID, shard int16, t Try, why string, due time.Time) {
	QueueAllDelayed(b, tenant, []Delayed{{Try: t, Shard: shard, Why: why, Due: due}})
}

// QueueAllDelayed writes delayed ticks in one statement. If a tick is there twice, the last one counts.
func QueueAllDelayed(b *pgx.Batch, tenant tenants.ID, holds []Delayed) {
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
		INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at, waits_for)
		SELECT DISTINCT ON (id, at, seq) $1::int, id, at, seq, attempt, shard, why, `+cohorts.NotPast("due")+`, waits_for
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[], $6::smallint[], $7::text[], $8::timestamptz[], $9::text[])
			WITH ORDINALITY AS h (id, at, seq, attempt, shard, why, due, waits_for, ord)
		ORDER BY id, at, seq, ord DESC
		ON CONFLICT (tenant_id, schedule_id, nominal_at, seq) DO UPDATE
		SET attempt = excluded.attempt, why = excluded.why, due_at = excluded.due_at, waits_for = excluded.waits_for`,
		tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, shards, whys, dues, waitsFor)
}

// NewerWait is how long rows that a newer program wrote are put off.
const NewerWait = time.Minute

// MostCleared is how many rows upkeep changes or deletes in one batch.
const MostCleared = 5000

// A tick whose endpoint is held or disabled, whose workflow is held, or whose tenant is halted or suspended, is parked: its row in delayed stays as it is until
// the tick expires, or until a change ends the wait and control wakes it. Many parked ticks cost as little as one.

// Parking is a tick that is to be parked.
type Parking struct {
	Try
	Shard    int16
	Workflow string
}

// ContendedWait is how long a tick waits for its next look while a change that may end its wait is being committed.
const ContendedWait = time.Second

// Never is the expiry of a parked tick that does not expire.
var Never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// ShareParking keeps every change that ends a wait of a tenant from being committed until tx ends. shared is false while such a change
// is being made: waiting for it here could deadlock, because it may wait for rows that tx has locked.
func ShareParking(ctx context.Context, tx pgx.Tx, tenant tenants.ID) (shared bool, err error) {
	err = tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock_shared($1, $2)`, postgres.ParkLocks, tenant).Scan(&shared)
	return shared, err
}

// ParkedFor is what ticks of a tenant wait for while they are parked: the endpoint named For, the release of a workflow (see ForRelease),
// or, if For is empty, that the tenant fires again.
type ParkedFor struct {
	Tenant tenants.ID
	For    string
}

// heldPrefix begins the For of ticks that wait for the release of a workflow. No endpoint has such a name.
const heldPrefix = "workflow/"

// ForRelease returns the For of ticks that wait until a held workflow is released.
func ForRelease(workflow string) string { return heldPrefix + workflow }

// Held returns the workflow whose release the ticks wait for.
func (p ParkedFor) Held() (workflow string, is bool) { return strings.CutPrefix(p.For, heldPrefix) }

// HeldWorkflows returns those of some workflows of a tenant that are held, in the caller's transaction.
func HeldWorkflows(ctx context.Context, tx pgx.Tx, tenant tenants.ID, names []string) ([]string, error) {
	rows, _ := tx.Query(ctx, `SELECT name FROM workflow WHERE tenant_id = $1 AND name = ANY($2) AND held_at IS NOT NULL`, tenant, names) // CollectRows reports the error
	held, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read held workflows: %w", err)
	}
	return held, nil
}
