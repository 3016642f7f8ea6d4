package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/tenants"
)

// unended is a tick that has not ended and was not told to stop.
type unended struct {
	ScheduleID int64
	NominalAt  time.Time
	Seq        int32
	State      record.State
}

// Withdraw cancels the ticks of schedules that have not ended, up to most, in the caller's transaction: waiting ones first, so that the
// end of a running one releases none. A tick that a worker or an endpoint has is told to stop. It returns how many ticks there were, and
// whether there are more. It locks the states of the schedules, so that no tick is handed out meanwhile. Before them it locks the running
// ticks, because the end of a tick locks its row before the state. A tick that is handed out between these two steps is locked after the
// state, and may deadlock with its end: the caller tries again.
func (c *Control) Withdraw(ctx context.Context, tx pgx.Tx, tenant tenants.ID, schedules []int64, most int) (ticks int, more bool, err error) {
	if len(schedules) == 0 {
		return 0, false, nil
	}
	if err := lockRunning(ctx, tx, tenant, schedules, most+1); err != nil {
		return 0, false, err
	}
	if _, err := tx.Exec(ctx, `SELECT FROM schedule_state WHERE tenant_id = $1 AND schedule_id = ANY($2) ORDER BY schedule_id FOR UPDATE`, tenant, schedules); err != nil {
		return 0, false, fmt.Errorf("lock the states of schedules: %w", err)
	}
	found, err := unendedOf(ctx, tx, tenant, schedules, most+1)
	if err != nil {
		return 0, false, err
	}
	if more = len(found) > most; more {
		found = found[:most]
	}
	for _, one := range found {
		k := ident.TickKey{Schedule: one.ScheduleID, At: one.NominalAt.UTC(), Seq: one.Seq}
		t, now, err := finish.LockTick(ctx, tx, tenant, k)
		if err != nil {
			return 0, false, err
		}
		switch {
		case t == nil:
			continue
		case t.State == record.Scheduled:
			err = c.cancelWaiting(ctx, tx, tenant, k, now, record.Requested)
		case t.State == record.Running && !t.Stopped():
			err = c.cancelRunning(ctx, tx, tenant, t, now)
		default:
			continue
		}
		if err != nil {
			return 0, false, err
		}
		ticks++
	}
	return ticks, more, nil
}

// lockRunning locks the running ones of the ticks that unendedOf returns.
func lockRunning(ctx context.Context, tx pgx.Tx, tenant tenants.ID, schedules []int64, most int) error {
	found, err := unendedOf(ctx, tx, tenant, schedules, most)
	if err != nil {
		return err
	}
	var b pgx.Batch
	for _, one := range found {
		if one.State == record.Running {
			b.Queue(`SELECT FROM tick WHERE `+record.ByKey+` FOR UPDATE`, tenant, one.ScheduleID, one.NominalAt, one.Seq)
		}
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("lock running ticks: %w", err)
	}
	return nil
}

// unendedOf returns up to most ticks of schedules that have not ended and were not told to stop, waiting ones first. The counters of a
// schedule tell how many there are, so that its ended ticks are not searched for more. A deleted schedule has no counters.
func unendedOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, schedules []int64, most int) ([]unended, error) {
	rows, _ := tx.Query(ctx, `
		SELECT t.schedule_id, t.nominal_at, t.seq, t.state
		FROM unnest($2::bigint[]) AS i (id)
		LEFT JOIN schedule_state st ON st.tenant_id = $1 AND st.schedule_id = i.id
		CROSS JOIN LATERAL (
			SELECT schedule_id, nominal_at, seq, state, reason
			FROM tick
			WHERE tenant_id = $1 AND schedule_id = i.id AND state IN (0, 1) AND (st.schedule_id IS NOT NULL OR reason = 0)
			ORDER BY nominal_at DESC, seq DESC
			LIMIT CASE WHEN st.schedule_id IS NULL THEN $3 ELSE st.live + st.buffered + st.aside + st.aside_buffered + (
				SELECT count(*) FROM delayed d WHERE d.tenant_id = $1 AND d.schedule_id = i.id AND d.why = 'later') END
		) t
		WHERE t.reason = 0
		LIMIT $3`, tenant, schedules, most) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[unended])
	if err != nil {
		return nil, fmt.Errorf("look for ticks that have not ended: %w", err)
	}
	slices.SortFunc(found, func(a, b unended) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.ScheduleID, b.ScheduleID), a.NominalAt.Compare(b.NominalAt), cmp.Compare(a.Seq, b.Seq))
	})
	return found, nil
}
