package events

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

// An event takes three steps in the database, so that no crash loses it. The transaction that causes it appends a row to table notice_delta,
// and waits for no lock. Each second AddUp folds these rows into table notice, a row for each cause. A notice that is due becomes an event
// for each endpoint that asks for such events; the next event of the cause follows after noticeGap. sendEvents sends the events.

const (
	NoticeEvery   = time.Second      // between two runs of AddUp
	mostHappened  = 1000             // happenings in a run
	mostNotices   = 500              // notices in a run
	mostCauses    = 100              // of one type of event of a tenant; all further causes count as one
	noticeGap     = time.Hour        // between two events of one cause
	suspendedGap  = time.Minute      // until the next look at what a tenant that is not active waits for
	QuotaLook     = 15 * time.Second // between two runs of LookAtQuotas
	QuotaLookFor  = 10 * time.Second // limits one run
	mostQuotaLook = 1000             // tenants in one look
)

// AnyNotice reports whether AddUp has work.
func (es *Events) AnyNotice(ctx context.Context) (bool, error) {
	found, err := postgres.Finds(ctx, es.pool, `SELECT FROM notice_delta WHERE `+postgres.Unfolded("notice_delta"))
	if err != nil || found {
		return found, err
	}
	_, first, err := es.dueNotices.Look(ctx, es.pool, es.horizon)
	return !first.IsZero(), err
}

// AddUp folds happenings into notices, and makes events of due notices. It puts off the notices of tenants that are not active. more
// reports whether another run would find more.
func (es *Events) AddUp(ctx context.Context) (more bool, err error) {
	var happened, due int
	from := es.dueNotices.Floor.Look(es.horizon, false).From
	err = pgx.BeginFunc(ctx, es.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(postgres.Fold("notice_delta", "tenant_id, event, cause, n, at, schedule_id, nominal_at, seq, data")+`, causes AS (
				SELECT tenant_id, event, array_agg(cause) AS known
				FROM notice
				WHERE (tenant_id, event) IN (SELECT tenant_id, event FROM taken)
				GROUP BY tenant_id, event
			), known AS (
				SELECT t.*, COALESCE(t.cause = ANY (c.known), false) AS known, COALESCE(cardinality(c.known), 0) AS causes
				FROM taken t
				LEFT JOIN causes c ON c.tenant_id = t.tenant_id AND c.event = t.event
			), caused AS (
				SELECT tenant_id, event, n, at, schedule_id, nominal_at, seq, data,
					CASE WHEN known OR causes + dense_rank() OVER (PARTITION BY tenant_id, event, known ORDER BY cause) <= $2 THEN cause ELSE '' END AS cause
				FROM known
			), noticed AS (
			INSERT INTO notice AS o (tenant_id, event, cause, n, first_at, last_at, schedule_id, nominal_at, seq, data)
			SELECT DISTINCT ON (tenant_id, event, cause) tenant_id, event, cause,
				sum(n) OVER w, min(at) OVER w, max(at) OVER w, schedule_id, nominal_at, seq, data
			FROM caused
			WINDOW w AS (PARTITION BY tenant_id, event, cause)
			ORDER BY tenant_id, event, cause, at DESC
			ON CONFLICT (tenant_id, event, cause) DO UPDATE
			SET n = o.n + excluded.n, first_at = CASE WHEN o.n = 0 THEN excluded.first_at ELSE o.first_at END, last_at = excluded.last_at,
				schedule_id = excluded.schedule_id, nominal_at = excluded.nominal_at, seq = excluded.seq, data = excluded.data
			)
			SELECT count(*) FROM taken`,
			mostHappened, mostCauses).QueryRow(func(row pgx.Row) error { return row.Scan(&happened) })
		b.Queue(`
			WITH due AS MATERIALIZED (
				SELECT o.*, t.status = 'active' AS active, 'evt_' || replace(gen_random_uuid()::text, '-', '') AS id
				FROM notice o
				JOIN tenant t ON t.id = o.tenant_id
				WHERE o.next_at BETWEEN $4 AND (SELECT `+postgres.Now+`) AND o.n > 0
				ORDER BY o.next_at
				LIMIT $1
			), told AS (
				UPDATE notice o
				SET n = CASE WHEN due.active THEN 0 ELSE o.n END,
					next_at = `+postgres.Now+` + CASE WHEN due.active THEN $2::interval ELSE $3::interval END
				FROM due
				WHERE o.tenant_id = due.tenant_id AND o.event = due.event AND o.cause = due.cause
			), made AS (
			INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, schedule_id, nominal_at, seq, data)
			SELECT due.tenant_id, e.name, due.id, due.event, due.cause, due.n, due.first_at, due.last_at, due.schedule_id, due.nominal_at, due.seq, due.data
			FROM due
			JOIN endpoint e ON e.tenant_id = due.tenant_id AND due.event = ANY (e.events) AND e.state <> 'disabled'
			WHERE due.active
			ON CONFLICT DO NOTHING
			)
			SELECT count(*) FROM due`, mostNotices, noticeGap, suspendedGap, from).QueryRow(func(row pgx.Row) error { return row.Scan(&due) })
		b.Queue(`DELETE FROM notice WHERE next_at BETWEEN $1 AND (SELECT `+postgres.Now+`) AND n = 0`, from) // a cause that has been quiet for an hour
		return tx.SendBatch(ctx, &b).Close()
	})
	return happened == mostHappened || due == mostNotices, err
}

// LookAtQuotas notes an event for each quota of which a tenant has used four fifths, if an endpoint of the tenant asks for such
// events. Each run looks at up to mostQuotaLook tenants, in the order of their numbers. A tenant that fails does not stop the others.
// more is always false.
func (es *Events) LookAtQuotas(ctx context.Context) (more bool, err error) {
	rows, _ := es.pool.Query(ctx, `
		SELECT DISTINCT e.tenant_id
		FROM endpoint e
		JOIN tenant t ON t.id = e.tenant_id AND t.status = 'active'
		WHERE e.tenant_id > $1 AND 'quota.soft' = ANY (e.events) AND e.state <> 'disabled'
		ORDER BY e.tenant_id
		LIMIT $2`, es.quotasAt, mostQuotaLook) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return false, fmt.Errorf("look for tenants with events of quotas: %w", err)
	}
	var errs []error
	for _, id := range found {
		es.quotasAt = tenants.ID(id)
		if err := es.noteQuotas(ctx, tenants.ID(id)); err != nil {
			if ctx.Err() != nil { // the next look continues after this tenant
				return false, nil
			}
			errs = append(errs, fmt.Errorf("quotas of tenant %d: %w", id, err))
		}
	}
	if len(found) < mostQuotaLook {
		es.quotasAt = 0
	}
	return false, errors.Join(errs...)
}

// noteQuotas notes an event for each quota of a tenant that is nearly used.
func (es *Events) noteQuotas(ctx context.Context, tenant tenants.ID) error {
	uses, err := es.uses(postgres.ForTenant(ctx, int32(tenant)), tenant)
	if err != nil {
		return err
	}
	for name, use := range uses {
		if !use.Soft {
			continue
		}
		h := tenants.Happening{Event: tenants.QuotaSoft, Cause: name, Data: map[string]any{"quota": name, "limit": use.Limit, "used": *use.Used}}
		if err := tenants.Happened(ctx, es.pool, tenant, h); err != nil {
			return err
		}
	}
	return nil
}

// described holds the words of an event about the tick or schedule that it names, as it is now; nil if that was erased.
type described struct {
	Workflow *string
	Key      *string
	Attempt  *int16
	Error    *string
}

// describe reads what an event says of the tick or schedule that it names.
func (es *Events) describe(ctx context.Context, e *event) (t described, err error) {
	if e.ScheduleID == nil {
		return t, nil
	}
	err = es.pool.QueryRow(ctx, `
		SELECT COALESCE(s.workflow, l.workflow), COALESCE(s.key, l.key), l.attempt, l.error
		FROM (SELECT) one
		LEFT JOIN schedule s ON s.tenant_id = $1 AND s.id = $2
		LEFT JOIN dead_letter l ON `+record.KeyIs("l", "$1", "$2", "$3", "$4"),
		e.TenantID, *e.ScheduleID, e.NominalAt, e.Seq).Scan(&t.Workflow, &t.Key, &t.Attempt, &t.Error)
	if err != nil {
		return t, fmt.Errorf("read the tick or schedule of an event: %w", err)
	}
	return t, nil
}

// newDueNotices returns the low end of the index of notices by their next time.
func newDueNotices() cluster.LowEnd {
	return cluster.LowEnd{
		Index:  "notice_next",
		First:  `SELECT (SELECT next_at FROM notice WHERE next_at <= (SELECT ` + postgres.Now + `) AND next_at >= $1 ORDER BY next_at LIMIT 1)`,
		Below:  `SELECT (SELECT next_at FROM notice WHERE next_at >= $1 AND next_at < $2 ORDER BY next_at LIMIT 1)`,
		Search: cluster.Search{Every: cluster.SeldomSearch},
	}
}
