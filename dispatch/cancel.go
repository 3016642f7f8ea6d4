package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Cancel ends a tick. One that waits is cancelled at once. One that a worker or an endpoint has is told to stop, as its
// next heartbeat says, and is cancelled when its attempt ends. One that has ended is 409 `tick_ended`; one that was told
// to stop already is left as it is.
func (d *Dispatch) Cancel(ctx context.Context, tenant tenants.ID, id string) (Tick, error) {
	k, ok := d.IDs.ParseTick(id)
	if !ok {
		return Tick{}, noTick(id)
	}
	query, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err := postgres.Retry(query, func() error {
		return pgx.BeginFunc(query, d.API, func(tx pgx.Tx) error {
			t, now, err := lockTick(query, tx, tenant, k)
			if err != nil {
				return err
			}
			switch {
			case t == nil:
				return noTick(id)
			case t.State == record.Scheduled:
				err = d.cancelWaiting(query, tx, tenant, k, now, record.Requested)
			case t.State != record.Running:
				return fault.Conflict("tick_ended", "the tick is %s already", t.State)
			case t.Stopped():
				return nil
			default:
				err = d.cancelRunning(query, tx, tenant, t, now)
			}
			if err != nil {
				return err
			}
			is, _, err := lockTick(query, tx, tenant, k)
			if err != nil || is == nil {
				return err
			}
			return tenants.Audit(query, tx, tenant, "", tenants.Change{
				Action: "tick.cancel", Target: "ticks/" + id,
				Before: auditedTick{id, t.State.String(), t.Reason.String(), t.Attempt}, After: auditedTick{id, is.State.String(), is.Reason.String(), is.Attempt},
			})
		})
	})
	if err != nil {
		return Tick{}, err
	}
	return d.Tick(ctx, tenant, id)
}

// auditedTick is a tick as the audit tells it.
type auditedTick struct {
	TickID  string `json:"tick_id"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Attempt int16  `json:"attempt"`
}

func noTick(id string) error { return fault.NotFound("no tick %q", id) }

// lockTick locks the row of a tick, and reads the clock under the lock; it is nil where there is none.
func lockTick(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (t *record.Tick, now time.Time, err error) {
	rows, _ := tx.Query(ctx, `
		SELECT `+record.Columns+`
		FROM tick t
		WHERE `+record.KeyIs("t", "$1", "$2", "$3", "$4")+`
		FOR UPDATE`, tenant, k.Schedule, k.At, k.Seq) // CollectExactlyOneRow reports the error
	t, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[record.Tick])
	if errors.Is(err, pgx.ErrNoRows) {
		t, err = nil, nil
	}
	if err != nil {
		return nil, now, fmt.Errorf("lock tick: %w", err)
	}
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return nil, now, fmt.Errorf("read clock: %w", err)
	}
	return t, now.UTC(), nil
}

// cancelWaiting cancels a tick that waits for others of its schedule to end.
func (d *Dispatch) cancelWaiting(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey, now time.Time, why record.Reason) error {
	var b pgx.Batch
	b.Queue(`
		WITH gone AS (
			DELETE FROM buffered WHERE `+record.ByKey+` RETURNING aside
		)`+state.Withdraw, tenant, k.Schedule, k.At, k.Seq)
	b.Queue(`
		UPDATE tick
		SET state = $5, reason = $6, ended_at = $7
		WHERE `+record.ByKey,
		tenant, k.Schedule, k.At, k.Seq, int16(record.Cancelled), int16(why), now)
	record.QueueEndedUse(&b, tenant, now, record.Cancelled, k.Schedule)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("cancel a waiting tick: %w", err)
	}
	return d.rearm(ctx, tx, tenant, now, []ident.TickKey{k})
}

// cancelRunning tells a tick under way to stop, and ends it where nobody has it.
func (d *Dispatch) cancelRunning(ctx context.Context, tx pgx.Tx, tenant tenants.ID, t *record.Tick, now time.Time) error {
	k := t.RowKey()
	idle, err := d.takeIdle(ctx, tx, tenant, t)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		UPDATE tick
		SET reason = $5
		WHERE `+record.ByKey, tenant, k.Schedule, k.At, k.Seq, int16(record.Requested))
	if err != nil {
		return fmt.Errorf("tell a tick to stop: %w", err)
	}
	if !idle {
		return nil
	}
	_, err = d.end(ctx, tx, tenant, now, []ending{{TickKey: k, attempt: t.Attempt, outcome: cancelled}})
	return err
}

// takeIdle takes a tick under way from where it waits for a moment, a slot or a worker. It is false where somebody has
// it, or is about to.
func (d *Dispatch) takeIdle(ctx context.Context, tx pgx.Tx, tenant tenants.ID, t *record.Tick) (bool, error) {
	done, err := tx.Exec(ctx, `
		DELETE FROM held
		WHERE `+record.ByKey+` AND why <> 'answer'`,
		tenant, t.ScheduleID, t.NominalAt, t.Seq)
	if err != nil {
		return false, fmt.Errorf("take a held tick: %w", err)
	}
	if done.RowsAffected() > 0 {
		return true, nil
	}
	if t.ChunkID != nil { // it is pushed
		return false, nil
	}
	done, err = tx.Exec(ctx, `
		DELETE FROM waiting
		WHERE `+record.ByKey, tenant, t.ScheduleID, t.NominalAt, t.Seq)
	if err != nil {
		return false, fmt.Errorf("take a tick that waits for a slot: %w", err)
	}
	if done.RowsAffected() > 0 {
		return true, nil
	}
	var workflow, queue *string
	var priority *int16
	var defaults []byte
	err = tx.QueryRow(ctx, `
		SELECT COALESCE(s.workflow, r.workflow), COALESCE(s.queue, r.queue), COALESCE(s.priority, r.priority), w.defaults
		FROM (SELECT) one
		LEFT JOIN schedule s ON s.tenant_id = $1 AND s.id = $2 AND s.version = $3
		LEFT JOIN revision r ON r.tenant_id = $1 AND r.schedule_id = $2 AND r.version = $3
		LEFT JOIN workflow w ON w.tenant_id = $1 AND w.name = COALESCE(s.workflow, r.workflow)`,
		tenant, t.ScheduleID, t.Version).Scan(&workflow, &queue, &priority, &defaults)
	if err != nil {
		return false, fmt.Errorf("read the queue of a tick: %w", err)
	}
	terms, err := policy.Resolve(policy.Stored{Queue: queue, Priority: priority}, defaults)
	if err != nil || workflow == nil { // its queue is not known: it ends when its turn comes
		return false, nil
	}
	at := readyPlace{workflow: *workflow, readyQueue: readyQueue{terms.Queue, terms.Priority}}
	at.from = d.ready.of(tenant, at.workflow, &d.horizon).from(at.readyQueue)
	return takeOneReady(ctx, tx, tenant, at, t.RowKey())
}

// giveUp cancels a tick that is past its retention, whoever has it.
func (d *Dispatch) giveUp(ctx context.Context, tenant tenants.ID, k ident.TickKey) error {
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		t, now, err := lockTick(ctx, tx, tenant, k)
		if err != nil || t == nil {
			return err
		}
		switch t.State {
		case record.Scheduled:
			return d.cancelWaiting(ctx, tx, tenant, k, now, record.Expired)
		case record.Running:
			if _, err := d.takeIdle(ctx, tx, tenant, t); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `DELETE FROM held WHERE `+record.ByKey, tenant, k.Schedule, k.At, k.Seq)
			if err != nil {
				return err
			}
			_, err = d.end(ctx, tx, tenant, now, []ending{{TickKey: k, attempt: t.Attempt, outcome: cancelled}})
			return err
		}
		return nil
	})
}
