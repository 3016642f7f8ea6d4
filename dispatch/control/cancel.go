package control

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Cancel ends a tick, and returns it. A waiting tick is cancelled at once. A tick that a worker or an endpoint has is told to stop by
// the answer to its next heartbeat, and is cancelled when its attempt ends. A tick that has ended is a fault, 409 `tick_ended`. A tick
// that was told to stop already stays as it is.
func (c *Control) Cancel(ctx context.Context, tenant tenants.ID, id string) (history.Tick, error) {
	k, ok := c.ids.ParseTick(id)
	if !ok {
		return history.Tick{}, record.NoTick(id)
	}
	query, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err := postgres.Retry(query, func() error {
		return pgx.BeginFunc(query, c.api, func(tx pgx.Tx) error {
			t, now, err := finish.LockTick(query, tx, tenant, k)
			if err != nil {
				return err
			}
			switch {
			case t == nil:
				return record.NoTick(id)
			case t.State == record.Scheduled:
				err = c.cancelWaiting(query, tx, tenant, k, now, record.Requested)
			case t.State != record.Running:
				return fault.Conflict("tick_ended", "the tick is %s already", t.State)
			case t.Stopped():
				return nil
			default:
				err = c.cancelRunning(query, tx, tenant, t, now)
			}
			if err != nil {
				return err
			}
			is, _, err := finish.LockTick(query, tx, tenant, k)
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
		return history.Tick{}, err
	}
	return c.history.Tick(ctx, tenant, id)
}

// auditedTick is a tick as the audit shows it.
type auditedTick struct {
	TickID  string `json:"tick_id"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Attempt int16  `json:"attempt"`
}

// cancelWaiting cancels a buffered tick, or a manual one that waits for its time.
func (c *Control) cancelWaiting(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey, now time.Time, why record.Reason) error {
	var b pgx.Batch
	b.Queue(`
		WITH gone AS (
			DELETE FROM buffered WHERE `+record.ByKey+` RETURNING aside
		)`+state.Withdraw, tenant, k.Schedule, k.At, k.Seq)
	b.Queue(`DELETE FROM delayed WHERE `+record.ByKey+` AND why = 'later'`, tenant, k.Schedule, k.At, k.Seq)
	b.Queue(`
		UPDATE tick
		SET state = $5, reason = $6, ended_at = $7
		WHERE `+record.ByKey,
		tenant, k.Schedule, k.At, k.Seq, int16(record.Cancelled), int16(why), now)
	record.QueueEndedUse(&b, tenant, now, record.Cancelled, record.NoReason, k.Schedule)
	c.finish.Tail.EndedOne(tenant, k, record.Cancelled)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("cancel a waiting tick: %w", err)
	}
	return c.finish.Rearm(ctx, tx, tenant, now, []ident.TickKey{k})
}

// cancelRunning tells a tick under way to stop. If no worker or endpoint has it, it ends at once.
func (c *Control) cancelRunning(ctx context.Context, tx pgx.Tx, tenant tenants.ID, t *record.Tick, now time.Time) error {
	k := t.RowKey()
	idle, err := c.takeIdle(ctx, tx, tenant, t)
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
	_, err = c.finish.End(ctx, tx, tenant, now, []finish.Ending{{TickKey: k, Attempt: t.Attempt, Outcome: finish.Cancelled}})
	return err
}

// takeIdle removes a tick under way from delayed, queued or ready. It returns false if a worker or an endpoint has the tick, or is about
// to take it.
func (c *Control) takeIdle(ctx context.Context, tx pgx.Tx, tenant tenants.ID, t *record.Tick) (bool, error) {
	done, err := tx.Exec(ctx, `
		DELETE FROM delayed
		WHERE `+record.ByKey+` AND why <> 'answer'`,
		tenant, t.ScheduleID, t.NominalAt, t.Seq)
	if err != nil {
		return false, fmt.Errorf("take a delayed tick: %w", err)
	}
	if done.RowsAffected() > 0 {
		return true, nil
	}
	if t.ChunkID != nil { // it is pushed
		return false, nil
	}
	done, err = tx.Exec(ctx, `
		DELETE FROM queued
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
		LEFT JOIN workflow w ON w.tenant_id = $1 AND w.name = CASE WHEN s.workflow IS NULL THEN r.workflow ELSE s.workflow END`,
		tenant, t.ScheduleID, t.Version).Scan(&workflow, &queue, &priority, &defaults)
	if err != nil {
		return false, fmt.Errorf("read the queue of a tick: %w", err)
	}
	terms, err := policy.Resolve(policy.Stored{Queue: queue, Priority: priority}, defaults)
	if err != nil || workflow == nil { // its queue is unknown: the tick ends when a poll takes it
		return false, nil
	}
	at := lease.ReadyPlace{Workflow: *workflow, ReadyQueue: lease.ReadyQueue{Queue: terms.Queue, Priority: terms.Priority}}
	at.From = c.lease.FirstReady(tenant, at.Workflow, at.ReadyQueue)
	return lease.TakeOneReady(ctx, tx, tenant, at, t.RowKey())
}

// GiveUp cancels a tick that is past its retention, even if a worker or an endpoint has it.
func (c *Control) GiveUp(ctx context.Context, tenant tenants.ID, k ident.TickKey) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		t, now, err := finish.LockTick(ctx, tx, tenant, k)
		if err != nil || t == nil {
			return err
		}
		switch t.State {
		case record.Scheduled:
			return c.cancelWaiting(ctx, tx, tenant, k, now, record.Expired)
		case record.Running:
			if _, err := c.takeIdle(ctx, tx, tenant, t); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `DELETE FROM delayed WHERE `+record.ByKey, tenant, k.Schedule, k.At, k.Seq)
			if err != nil {
				return err
			}
			_, err = c.finish.End(ctx, tx, tenant, now, []finish.Ending{{TickKey: k, Attempt: t.Attempt, Outcome: finish.Cancelled}})
			return err
		}
		return nil
	})
}
