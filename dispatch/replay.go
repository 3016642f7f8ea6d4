package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Replay delivers a tick again that failed for good: the same tick, whose attempts go on from the last one with as many
// more as its schedule allows, however late it is. It runs aside: where its schedule's policy lets no two ticks run at
// once it waits for those that do, and those that come wait for it. One that has not failed is 409 `tick_not_failed`.
func (d *Dispatch) Replay(ctx context.Context, tenant tenants.ID, id string, once web.Once) (reply web.Reply, err error) {
	k, ok := d.IDs.ParseTick(id)
	if !ok {
		return reply, noTick(id)
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, d.API, func(tx pgx.Tx) error {
			reply, err = once.Run(ctx, tx, int32(tenant), func() (int, any, error) {
				r, err := d.replay(ctx, tx, tenant, k)
				if errors.Is(err, errNoLetter) {
					return 0, nil, noTick(id)
				}
				if err != nil {
					return 0, nil, err
				}
				shown := d.shown(r.tick, r.workflow, r.key)
				return http.StatusAccepted, shown, tenants.Audit(ctx, tx, tenant, "", tenants.Change{
					Action: "tick.replay", Target: "ticks/" + id,
					Before: auditedTick{id, Failed.String(), "", *r.ReplayedFrom}, After: auditedTick{id, shown.State, shown.Reason, shown.Attempt},
				})
			})
			return err
		})
	})
	return reply, err
}

// replayed is a tick that is delivered again, of a schedule.
type replayed struct {
	*tick
	workflow, key string
}

// replay delivers a failed tick again, in the caller's transaction. It is errNoLetter where there is no such tick.
func (d *Dispatch) replay(ctx context.Context, tx pgx.Tx, tenant tenants.ID, k ident.TickKey) (r replayed, err error) {
	t, now, err := lockTick(ctx, tx, tenant, k)
	if err != nil {
		return r, err
	}
	if t == nil {
		if t, err = d.revive(ctx, tx, tenant, k); err != nil {
			return r, err
		}
	}
	if t == nil { // there is none, or another has just put it back
		if t, now, err = lockTick(ctx, tx, tenant, k); err != nil {
			return r, err
		}
	}
	if t == nil {
		return r, errNoLetter
	}
	if t.State != Failed {
		return r, notFailed(t)
	}
	r.tick = t
	var overlap *string
	var defaults []byte
	err = tx.QueryRow(ctx, `
		SELECT s.workflow, s.key, s.overlap, w.defaults
		FROM schedule s
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE s.tenant_id = $1 AND s.id = $2
		FOR SHARE OF s`, tenant, k.Schedule).Scan(&r.workflow, &r.key, &overlap, &defaults)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, fault.Conflict("schedule_deleted", "the tick's schedule is deleted")
	}
	if err != nil {
		return r, fmt.Errorf("read schedule: %w", err)
	}
	if defaults == nil {
		return r, fault.Conflict("workflow_deleted", "the workflow %q is gone", r.workflow)
	}
	terms, err := policy.DefaultTerms(defaults)
	if err != nil {
		return r, err
	}
	free, err := freeAside(ctx, tx, tenant, k.Schedule, or(overlap, terms.Overlap) == "allow_all")
	if err != nil {
		return r, err
	}
	t.ReplayedFrom, t.Attempt = new(t.Attempt), t.Attempt+1
	t.State, t.Reason, t.EndedAt, t.Error, t.ChunkID = Running, NoReason, nil, nil, nil
	if !free {
		t.State = Scheduled
	}
	var b pgx.Batch
	b.Queue(`DELETE FROM dead_letter WHERE `+byKey, tenant, k.Schedule, k.At, k.Seq)
	b.Queue(`
		UPDATE tick
		SET state = $5, reason = 0, attempt = $6, replayed_from = $7, ended_at = NULL, error = NULL, chunk_id = NULL
		WHERE `+byKey,
		tenant, k.Schedule, k.At, k.Seq, int16(t.State), t.Attempt, t.ReplayedFrom)
	b.Queue(`UPDATE schedule_state SET failed = GREATEST(0, failed - 1) WHERE tenant_id = $1 AND schedule_id = $2`, tenant, k.Schedule)
	queueAside(&b, tenant, t, free, now)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return r, fmt.Errorf("deliver a tick again: %w", err)
	}
	if !free {
		return r, nil
	}
	return r, cohorts.WakeSweep(ctx, tx, t.Shard)
}

// freeAside locks a schedule's state, and tells whether a tick aside may run now: nothing of the schedule runs or waits,
// or its policy allows all.
func freeAside(ctx context.Context, tx pgx.Tx, tenant tenants.ID, schedule int64, allowsAll bool) (bool, error) {
	var idle bool
	err := tx.QueryRow(ctx, `
		SELECT live + waiting + aside + aside_waiting = 0
		FROM schedule_state
		WHERE tenant_id = $1 AND schedule_id = $2
		FOR UPDATE`, tenant, schedule).Scan(&idle)
	if err != nil {
		return false, fmt.Errorf("lock the state of a schedule: %w", err)
	}
	return idle || allowsAll, nil
}

// queueAside sends a tick aside on its way where it is free to run, and has it wait for its turn otherwise.
func queueAside(b *pgx.Batch, tenant tenants.ID, t *tick, free bool, now time.Time) {
	k := t.key()
	if !free {
		b.Queue(`
			INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq, aside, attempt)
			VALUES ($1, $2, $3, $4, true, $5)`, tenant, k.Schedule, k.At, k.Seq, t.Attempt)
		b.Queue(`UPDATE schedule_state SET aside_waiting = aside_waiting + 1 WHERE tenant_id = $1 AND schedule_id = $2`, tenant, k.Schedule)
		return
	}
	b.Queue(`
		UPDATE schedule_state
		SET aside = aside + 1, fired = fired + CASE WHEN $3 THEN 0 ELSE 1 END
		WHERE tenant_id = $1 AND schedule_id = $2`, tenant, k.Schedule, t.ReplayedFrom != nil)
	queueHold(b, tenant, t.Shard, try{TickKey: k, Attempt: t.Attempt}, "released", now)
}

var errNoLetter = errors.New("the dead letter is gone")

func notFailed(t *tick) error {
	return fault.Conflict("tick_not_failed", "the tick is %s: one that failed for good can be delivered again", t.State)
}
