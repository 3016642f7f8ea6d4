package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const mostDelays = 2500 // cohorts with fixed_delay that one page holds

// delaysPlace is the position of a walk through the cohorts with fixed_delay.
type delaysPlace struct {
	shard  int16
	cohort int64
}

// resting is a schedule with fixed_delay whose cohort has no due time.
type resting struct {
	tenant   tenants.ID
	place    delaysPlace
	schedule *int64
	delayAt  *time.Time
	unarmed  bool // it is active, and no tick of it is under way
	lost     bool // no end of a tick will ever set its next time
}

// delayWalk walks through the schedules with fixed_delay.
type delayWalk struct {
	pool     *pgxpool.Pool
	unopened *chunk.Unopened
	horizon  *cluster.Horizon
}

// resting returns the next page of schedules with fixed_delay whose cohorts have no due time, and where the next page begins.
// Only their ticks show which of them are lost, so the walk reads all of them, a page at a time.
func (w *delayWalk) resting(ctx context.Context, after delaysPlace) (page []resting, next delaysPlace, err error) {
	floor, stuck := w.unopened.From(w.horizon)
	var r resting
	err = postgres.ReadPage(ctx, w.pool, `
		SELECT c.shard, c.id, c.tenant_id, m.schedule_id, st.delay_at,
			COALESCE(s.status = 'active' AND c.run_at IS NULL AND st.delay_at IS NULL, false),
			m.schedule_id IS NOT NULL AND c.run_at IS NULL AND st.delay_left IS DISTINCT FROM 0 AND (
				st.delay_at IS NULL OR t.ended_at IS NOT NULL OR t.there IS NULL AND NOT EXISTS (
					SELECT FROM `+chunk.UnopenedOf("c.shard", "c.tenant_id", "$4", "$5")+` k))
		FROM (
			SELECT shard, id, tenant_id, run_at
			FROM cohort
			WHERE delay AND due_at IS NULL AND empty_at IS NULL AND (shard, id) > ($1, $2)
			ORDER BY shard, id
			LIMIT $3
		) c
		LEFT JOIN LATERAL (SELECT schedule_id FROM member WHERE tenant_id = c.tenant_id AND cohort_id = c.id LIMIT 1) m ON true
		LEFT JOIN LATERAL (SELECT status FROM schedule WHERE tenant_id = c.tenant_id AND id = m.schedule_id OFFSET 0) s ON true
		LEFT JOIN LATERAL (SELECT delay_at, delay_left FROM schedule_state WHERE tenant_id = c.tenant_id AND schedule_id = m.schedule_id OFFSET 0) st ON true
		LEFT JOIN LATERAL (
			SELECT ended_at, true AS there
			FROM tick
			WHERE `+record.KeyIs("", "c.tenant_id", "m.schedule_id", "st.delay_at", "0")+`
			OFFSET 0
		) t ON true
		ORDER BY c.shard, c.id`, []any{after.shard, after.cohort, mostDelays, floor, stuck},
		[]any{&r.place.shard, &r.place.cohort, &r.tenant, &r.schedule, &r.delayAt, &r.unarmed, &r.lost}, func() error {
			page = append(page, r)
			return nil
		})
	if err != nil {
		return nil, after, fmt.Errorf("walk through schedules with fixed_delay: %w", err)
	}
	if len(page) == mostDelays {
		next = page[mostDelays-1].place
	}
	return page, next, nil
}

// lostDelays finds the schedules with fixed_delay that are lost.
type lostDelays struct {
	walk   *delayWalk
	log    *slog.Logger
	finish *finish.Finisher
	at     delaysPlace // of the walk; the lock of the task guards it
}

// rearm sets the next time of schedules with fixed_delay that no end of a tick will ever set: their tick has ended, or is neither
// recorded nor in a chunk. There are none, unless rows were changed by other means. Each run looks at one page of the walk.
func (l *lostDelays) rearm(ctx context.Context) error {
	page, next, err := l.walk.resting(ctx, l.at)
	if err != nil {
		return err
	}
	l.at = next
	type lostOnes struct {
		ids []int64
		at  []*time.Time
	}
	lost := map[tenants.ID]*lostOnes{}
	for _, r := range page {
		if !r.lost {
			continue
		}
		if lost[r.tenant] == nil {
			lost[r.tenant] = &lostOnes{}
		}
		lost[r.tenant].ids, lost[r.tenant].at = append(lost[r.tenant].ids, *r.schedule), append(lost[r.tenant].at, r.delayAt)
	}
	var errs []error
	for tenant, some := range lost {
		l.log.Warn("schedules with fixed_delay were not armed, and are now", "tenant", tenant, "schedules", len(some.ids))
		err := postgres.Retry(ctx, func() error {
			return pgx.BeginFunc(ctx, l.walk.pool, func(tx pgx.Tx) error {
				var now time.Time
				if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
					return err
				}
				return l.finish.RearmSchedules(ctx, tx, tenant, now.UTC(), some.ids, some.at)
			})
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("arm lost schedules with fixed_delay of tenant %d: %w", tenant, err))
		}
	}
	return errors.Join(errs...)
}
