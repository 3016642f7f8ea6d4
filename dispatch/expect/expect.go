package expect

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	LookEvery   = 10 * time.Second
	LookLimit   = 20 * time.Second
	tellAgain   = time.Hour        // while a condition lasts
	lateSpan    = time.Minute      // the ticks by which a workflow is late
	silentSpan  = 3 * time.Minute  // in which ticks became due
	noPollFor   = time.Minute      // then no worker polls
	confirmed   = 25 * time.Second // ticks have waited for so long before their tenant is told that nobody polls
	mostWatched = 500              // workflows in one transaction
)

// Watcher watches the workflows of all tenants.
type Watcher struct {
	pool    *pgxpool.Pool
	metrics *Metrics
	counts  map[string]int // of the round that is under way, by event; the lock of its task guards the fields below
	at      place          // where the next batch of workflows with expectations begins

	forgotten forgottenAt // where forget goes on
}

// place is a workflow in the order of a walk.
type place struct {
	Tenant   tenants.ID
	Workflow string
}

// New returns a Watcher.
func New(pool *pgxpool.Pool, metrics *Metrics) *Watcher {
	return &Watcher{pool: pool, metrics: metrics, counts: map[string]int{}}
}

// verdict is what a look finds of one workflow and event.
type verdict struct {
	place
	event     string
	unmet     bool
	met       bool // there is evidence that it is met; without any the earlier verdict stays
	data      any
	confirmed time.Duration // how long it must last before the tenant is told
}

// Look judges all workflows that have expectations, and all pulled workflows of which ticks wait, batch after batch. more reports
// that the next call continues.
func (w *Watcher) Look(ctx context.Context) (more bool, err error) {
	if w.at == (place{}) {
		clear(w.counts)
		if err := w.lookForWorkers(ctx); err != nil {
			return false, err
		}
	}
	all, err := w.expecting(ctx, w.at)
	if err != nil {
		return false, err
	}
	verdicts, err := w.judge(ctx, all)
	if err == nil {
		err = w.record(ctx, verdicts)
	}
	if err != nil {
		return false, err
	}
	if len(all) == mostWatched {
		w.at = all[len(all)-1].place
		return true, nil
	}
	w.at = place{}
	w.metrics.set(w.counts)
	return false, w.forget(ctx)
}

// record stores what was found of workflows, and queues the events: of a condition when it is confirmed and then each hour, and of its
// end if it was told. Each condition of a workflow is a cause of its own of the event of its end: the end of one delays no other.
func (w *Watcher) record(ctx context.Context, verdicts []verdict) error {
	var b pgx.Batch
	for _, v := range verdicts {
		switch {
		case v.unmet:
			w.counts[v.event]++
			text, err := json.Marshal(v.data)
			if err != nil {
				return err
			}
			b.Queue(`
				WITH stored AS (
					INSERT INTO unmet_expectation AS u (tenant_id, workflow, event, since, told_at, data)
					VALUES ($1, $2, $3, `+postgres.TxNow+`, CASE WHEN $5::interval = '0' THEN `+postgres.TxNow+` END, $4)
					ON CONFLICT (tenant_id, workflow, event) DO UPDATE
					SET data = excluded.data, told_at = CASE
						WHEN u.told_at IS NULL AND u.since <= `+postgres.TxNow+` - $5::interval OR u.told_at <= `+postgres.TxNow+` - $6::interval THEN `+postgres.TxNow+`
						ELSE u.told_at END
					RETURNING told_at = `+postgres.TxNow+` AS now
				)
				INSERT INTO notice_delta (tenant_id, event, cause, data)
				SELECT $1, $3::text, $2, $4
				FROM stored
				WHERE now AND `+tenants.Subscribed("$1", "$3::text"), v.Tenant, v.Workflow, v.event, string(text), v.confirmed, tellAgain)
		case v.met:
			b.Queue(`
				WITH gone AS (
					DELETE FROM unmet_expectation WHERE tenant_id = $1 AND workflow = $2 AND event = $3 RETURNING since, told_at
				)
				INSERT INTO notice_delta (tenant_id, event, cause, data)
				SELECT $1, $4::text, $2 || '/' || $3::text, json_build_object('workflow', $2::text, 'recovered_from', $3::text, 'since', since)
				FROM gone
				WHERE told_at IS NOT NULL AND `+tenants.Subscribed("$1", "$4::text"), v.Tenant, v.Workflow, v.event, tenants.WorkflowRecovered)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if err := w.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("store what is not met: %w", err)
	}
	return nil
}

// forget deletes rows of workflows that are gone, or expect nothing any more. Each call looks at one page of a walk.
func (w *Watcher) forget(ctx context.Context) error {
	rows, _ := w.pool.Query(ctx, `
		WITH page AS MATERIALIZED (
			SELECT ctid AS place, tenant_id, workflow, event
			FROM unmet_expectation
			WHERE (tenant_id, workflow, event) > ($1, $2, $3)
			ORDER BY tenant_id, workflow, event
			LIMIT $4
		), gone AS (
			DELETE FROM unmet_expectation
			WHERE ctid = ANY (ARRAY (
				SELECT p.place
				FROM page p
				LEFT JOIN LATERAL (SELECT expect_handed_s, expect_ended_s, endpoint FROM workflow WHERE tenant_id = p.tenant_id AND name = p.workflow OFFSET 0) w ON true
				WHERE CASE WHEN p.event = $5 THEN w.endpoint IS NOT NULL ELSE w.expect_handed_s IS NULL AND w.expect_ended_s IS NULL END))
		)
		SELECT tenant_id, workflow, event FROM page`, w.forgotten.Tenant, w.forgotten.Workflow, w.forgotten.Event, mostForgotten, tenants.WorkflowNoWorkers) // CollectRows reports the error
	page, err := pgx.CollectRows(rows, pgx.RowToStructByPos[forgottenAt])
	if err != nil {
		return fmt.Errorf("delete outdated unmet expectations: %w", err)
	}
	w.forgotten = forgottenAt{}
	if len(page) == mostForgotten {
		w.forgotten = page[mostForgotten-1]
	}
	return nil
}

// forgottenAt is a row in the order of the walk of forget.
type forgottenAt struct {
	Tenant   tenants.ID
	Workflow string
	Event    string
}

const (
	mostForgotten = 30     // rows of one page
	mostUnmet     = 10_000 // workflows without workers that one look reads
)
