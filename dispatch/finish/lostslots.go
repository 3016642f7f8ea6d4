package finish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// slotPlace is the position of the walk through the slots.
type slotPlace struct {
	schedule int64
	at       time.Time
	seq      int32
}

// lostSlots is where FreeLostSlots continues. The lock of its task guards the place.
type lostSlots struct {
	at    slotPlace
	pause cluster.Seldom // between its looks
}

const slotsWalked = 500 // slots that one run looks at

// limitedWorkflow names a workflow that may have free slots.
type limitedWorkflow struct {
	TenantID tenants.ID
	Workflow string
}

// FreeLostSlots frees slots of attempts that are over, which a process missed or died before it could free. Each run looks at one page of
// a walk. Then it grants slots to ticks that wait although slots are free, because a limit was raised or removed.
func (f *Finisher) FreeLostSlots(ctx context.Context) error {
	began := time.Now()
	free, read, err := f.freeLostSlots(ctx)
	if err != nil {
		return err
	}
	rows, _ := f.pool.Query(ctx, `
		WITH RECURSIVE limited (tenant_id, workflow) AS (
			(SELECT tenant_id, workflow FROM queued ORDER BY tenant_id, workflow LIMIT 1)
			UNION ALL
			SELECT n.tenant_id, n.workflow
			FROM limited l
			CROSS JOIN LATERAL (
				SELECT w.tenant_id, w.workflow
				FROM queued w
				WHERE (w.tenant_id, w.workflow) > (l.tenant_id, l.workflow)
				ORDER BY w.tenant_id, w.workflow
				LIMIT 1
			) n
		)
		SELECT tenant_id, workflow FROM limited`) // CollectRows reports the error
	queued, err := pgx.CollectRows(rows, pgx.RowToStructByPos[limitedWorkflow])
	if err != nil {
		return fmt.Errorf("look for queued ticks: %w", err)
	}
	f.lost.pause.Found(time.Since(began), read+len(queued), time.Now())
	for _, l := range queued {
		free[l] = true
	}
	var errs []error
	for l := range free {
		errs = append(errs, f.grantAll(ctx, l.TenantID, l.Workflow))
	}
	return errors.Join(errs...)
}

// AnySlot reports whether there are slots, or ticks that wait for one. After a look that took long, as it does under an old snapshot, it
// reports false for a while without another look.
func (f *Finisher) AnySlot(ctx context.Context) (bool, error) {
	began := time.Now()
	if !f.lost.pause.Due(began) {
		return false, nil
	}
	found, err := postgres.Finds(ctx, f.pool, `SELECT FROM slot UNION ALL SELECT FROM queued`)
	if err == nil && !found {
		f.lost.pause.Ended(began, time.Now())
	}
	return found, err
}

// freeLostSlots frees lost slots among the next ones of the walk, and returns their workflows and how many it read.
func (f *Finisher) freeLostSlots(ctx context.Context) (free map[limitedWorkflow]bool, read int, err error) {
	after := f.lost.at
	rows, _ := f.pool.Query(ctx, `
		WITH page AS MATERIALIZED (
			SELECT ctid, tenant_id, schedule_id, nominal_at, seq, attempt, workflow
			FROM slot
			WHERE (schedule_id, nominal_at, seq) > ($2, $3, $4)
			ORDER BY schedule_id, nominal_at, seq
			LIMIT $5
		), gone AS (
			DELETE FROM slot s
			WHERE s.ctid = ANY (ARRAY (
					SELECT p.ctid
					FROM page p
					WHERE NOT EXISTS (
						SELECT FROM tick t
						WHERE `+record.SameKey("t", "p")+`
							AND t.state = $1 AND t.attempt = p.attempt
						OFFSET 0)))
				AND NOT EXISTS (
					SELECT FROM tick t
					WHERE `+record.SameKey("t", "s")+`
						AND t.state = $1 AND t.attempt = s.attempt
					OFFSET 0)
			RETURNING s.tenant_id, s.workflow
		)
		SELECT tenant_id, workflow, schedule_id, nominal_at, seq, false FROM page
		UNION ALL
		SELECT tenant_id, workflow, 0, 'epoch', 0, true FROM gone`,
		int16(record.Running), after.schedule, after.at, after.seq, slotsWalked) // ForEachRow reports the error
	free = map[limitedWorkflow]bool{}
	last := slotPlace{}
	var l limitedWorkflow
	var at slotPlace
	var gone bool
	_, err = pgx.ForEachRow(rows, []any{&l.TenantID, &l.Workflow, &at.schedule, &at.at, &at.seq, &gone}, func() error {
		if gone {
			free[l] = true
			return nil
		}
		read, last = read+1, at
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("look for lost slots: %w", err)
	}
	if f.lost.at = last; read < slotsWalked {
		f.lost.at = slotPlace{}
	}
	return free, read, nil
}

// grantAll grants slots of a workflow until none is free or no tick waits.
func (f *Finisher) grantAll(ctx context.Context, tenant tenants.ID, workflow string) error {
	for more := true; more; {
		err := pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
			var now time.Time
			if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
				return err
			}
			var err error
			more, err = f.grant(ctx, tx, tenant, workflow, now.UTC())
			return err
		})
		if err != nil {
			return fmt.Errorf("grant slots of workflow %q: %w", workflow, err)
		}
	}
	return nil
}
