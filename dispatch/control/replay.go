package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/state"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Replays deliver failed ticks again.
type Replays struct {
	api        postgres.DB
	ids        ident.Codec
	operations *operations.Operations
	history    *history.Reader
}

// NewReplays returns Replays.
func NewReplays(c Config) *Replays {
	return &Replays{api: c.API, ids: c.IDs, operations: c.Operations, history: c.History}
}

// Replay delivers a failed tick again. It is the same tick: its attempt numbers continue, and it gets as many more attempts as its
// schedule allows, however late it is. It runs aside: if the overlap policy allows only one tick at a time, it waits for those that
// run, and later ticks wait for it. A tick that has not failed is a fault, 409 `tick_not_failed`. replayed reports that the result is
// that of an earlier request with the same Idempotency-Key.
func (rs *Replays) Replay(ctx context.Context, tenant tenants.ID, id string, request once.Request) (shown history.Tick, replayed bool, err error) {
	k, ok := rs.ids.ParseTick(id)
	if !ok {
		return shown, false, record.NoTick(id)
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, rs.api, func(tx pgx.Tx) error {
			shown, replayed, err = once.Do(ctx, tx, int32(tenant), request, func() (history.Tick, error) {
				r, err := rs.replay(ctx, tx, tenant, k)
				if errors.Is(err, errNoLetter) {
					return history.Tick{}, record.NoTick(id)
				}
				if err != nil {
					return history.Tick{}, err
				}
				shown := rs.history.Shown(r.Tick, record.Schedule{Workflow: r.workflow, Key: r.key, Subject: r.subject})
				if err := rs.history.Localize(ctx, tx, tenant, &shown); err != nil {
					return shown, err
				}
				return shown, tenants.Audit(ctx, tx, tenant, "", tenants.Change{
					Action: "tick.replay", Target: "ticks/" + id,
					Before: auditedTick{id, record.Failed.String(), "", *r.ReplayedFrom}, After: auditedTick{id, shown.State, shown.Reason, shown.Attempt},
				})
			})
			return err
		})
	})
	return shown, replayed, err
}

// replayed is a tick that is delivered again, and the name of its schedule.
type replayed struct {
	*record.Tick
	workflow, key, subject string
}

// replay delivers a failed tick again, in the caller's transaction. The error is errNoLetter if there is no such tick.
func (rs *Replays) replay(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (r replayed, err error) {
	t, now, err := rs.lockFailed(ctx, tx, tenant, k)
	if err != nil {
		return r, err
	}
	r.Tick = t
	var overlap *string
	var defaults []byte
	err = tx.QueryRow(ctx, `
		SELECT s.workflow, s.key, COALESCE(s.subject, s.key), s.overlap, w.defaults
		FROM schedule s
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE s.tenant_id = $1 AND s.id = $2
		FOR SHARE OF s`, tenant, k.Schedule).Scan(&r.workflow, &r.key, &r.subject, &overlap, &defaults)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, fault.Conflict("schedule_deleted", "the tick's schedule is deleted")
	}
	if err != nil {
		return r, fmt.Errorf("read schedule: %w", err)
	}
	if defaults == nil {
		return r, fault.Conflict("workflow_deleted", "the workflow %q is gone", r.workflow)
	}
	terms, err := policy.Resolve(policy.Stored{Overlap: overlap}, defaults)
	if err != nil {
		return r, err
	}
	counted := state.Schedule{Tenant: tenant, ID: k.Schedule}
	decision, err := state.DecideAside(ctx, tx, counted, terms.Overlap)
	if err != nil {
		return r, err
	}
	t.ReplayAs(decision)
	var b pgx.Batch
	b.Queue(`DELETE FROM dead_letter WHERE `+record.ByKey, tenant, k.Schedule, k.At, k.Seq)
	b.Queue(`
		UPDATE tick
		SET state = $5, reason = 0, attempt = $6, replayed_from = $7, ended_at = NULL, error = NULL, chunk_id = NULL
		WHERE `+record.ByKey,
		tenant, k.Schedule, k.At, k.Seq, int16(t.State), t.Attempt, t.ReplayedFrom)
	state.Revive(&b, counted, decision)
	queueAside(&b, tenant, t, now)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return r, fmt.Errorf("deliver a tick again: %w", err)
	}
	if decision == state.Buffered {
		return r, nil
	}
	return r, cohorts.WakeSweep(ctx, tx, t.Shard)
}

// lockFailed locks a failed tick, and restores it from its dead letter if its row is gone. The error is errNoLetter if there is neither.
func (rs *Replays) lockFailed(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (t *record.Tick, now time.Time, err error) {
	if t, now, err = finish.LockTick(ctx, tx, tenant, k); err != nil {
		return nil, now, err
	}
	if t == nil {
		if t, err = rs.revive(ctx, tx, tenant, k); err != nil {
			return nil, now, err
		}
	}
	if t == nil { // there is none, or another request has just restored it
		if t, now, err = finish.LockTick(ctx, tx, tenant, k); err != nil {
			return nil, now, err
		}
	}
	if t == nil {
		return nil, now, errNoLetter
	}
	if t.State != record.Failed {
		return nil, now, notFailed(t)
	}
	return t, now, nil
}

// queueAside holds a tick aside for the next sweep if it runs, and else stores it among the buffered ticks.
func queueAside(b *pgx.Batch, tenant tenants.ID, t *record.Tick, now time.Time) {
	k := t.RowKey()
	if t.State == record.Running {
		record.QueueDelayed(b, tenant, t.Shard, record.Try{TickKey: k, Attempt: t.Attempt}, "released", now)
		return
	}
	b.Queue(`
		INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq, aside, attempt)
		VALUES ($1, $2, $3, $4, true, $5)`, tenant, k.Schedule, k.At, k.Seq, t.Attempt)
}

var errNoLetter = errors.New("the dead letter is gone")

func notFailed(t *record.Tick) error {
	return fault.Conflict("tick_not_failed", "the tick is %s: one that failed for good can be delivered again", t.State)
}
