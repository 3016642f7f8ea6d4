package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const (
	retentionsRead = 500
	retentionsRun  = 20_000 // schedules in one run; the next run continues there

	endedLate     = time.Hour      // a tick that ended later than this after its nominal time is deleted by the next walk that reads all
	retentionsAll = 24 * time.Hour // between two walks that read all
)

// ownRetention is a schedule that keeps ended ticks for another time than its tenant.
type ownRetention struct {
	TenantID  int32
	ID        int64
	Workflow  string
	Key       string
	Succeeded *int32 `db:"keep_succeeded_s"`
	Failed    *int32 `db:"keep_failed_s"`
	Defaults  []byte
}

// retentionWalk is a walk through such schedules. A walk reads the ticks that have come past their retention since the walk before began:
// what else is older has ended in another way, and its tenant keeps it longer. One walk a day reads all.
type retentionWalk struct {
	at    ownRetention // the last schedule; its zero value: a walk begins
	began time.Time
	since time.Time // when the walk before began; the zero time: this one reads all
	all   time.Time // when a walk last began to read all
}

// begin begins a walk, unless one is under way.
func (w *retentionWalk) begin(now time.Time) {
	if w.at.TenantID != 0 {
		return
	}
	w.began, w.since = now, w.began
	if now.Sub(w.all) >= retentionsAll {
		w.all, w.since = now, time.Time{}
	}
}

// from returns the nominal time from which the ticks of a schedule are read that are past an edge now.
func (w *retentionWalk) from(now, edge time.Time) time.Time {
	if w.since.IsZero() {
		return time.Time{}
	}
	return edge.Add(w.since.Sub(now) - endedLate)
}

// scheduleRetention deletes the ended ticks that their schedules do not keep.
type scheduleRetention struct {
	pool      *pgxpool.Pool
	log       *slog.Logger
	rarely    *loop.Rarely
	own       retentionWalk // through schedules with a retention of their own
	inherited retentionWalk // through schedules that inherit one from their workflow
	turned    bool          // the last run began with own
}

// retain deletes ended ticks that their schedules do not keep any more, for the next schedules with a retention of their own
// or an inherited one. The two take turns in going first, so that neither walk uses up the time of the other for ever. These ticks are
// hidden already.
func (r *scheduleRetention) retain(ctx context.Context, _ ages, now time.Time) error {
	if r.turned = !r.turned; r.turned {
		return errors.Join(r.retainOwn(ctx, now), r.retainInherited(ctx, now))
	}
	return errors.Join(r.retainInherited(ctx, now), r.retainOwn(ctx, now))
}

// retainOwn walks through the schedules with a retention of their own.
func (r *scheduleRetention) retainOwn(ctx context.Context, now time.Time) error {
	return r.eachRetention(ctx, now, &r.own, `
		SELECT s.tenant_id, s.id, s.workflow, s.key, s.keep_succeeded_s, s.keep_failed_s, w.defaults
		FROM schedule s
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE (s.keep_succeeded_s IS NOT NULL OR s.keep_failed_s IS NOT NULL) AND (s.tenant_id, s.id) > ($1, $2)
		ORDER BY s.tenant_id, s.id
		LIMIT $3`, func(one ownRetention) []any { return []any{one.TenantID, one.ID, retentionsRead} })
}

// retainInherited walks through the schedules that inherit a retention from their workflow.
func (r *scheduleRetention) retainInherited(ctx context.Context, now time.Time) error {
	return r.eachRetention(ctx, now, &r.inherited, `
		SELECT s.tenant_id, s.id, s.workflow, s.key, s.keep_succeeded_s, s.keep_failed_s, w.defaults
		FROM workflow w
		CROSS JOIN LATERAL (
			SELECT *
			FROM schedule
			WHERE tenant_id = w.tenant_id AND workflow = w.name AND (w.tenant_id > $1 OR w.name > $2 OR key > $3)
			ORDER BY key
			LIMIT $4
		) s
		WHERE w.defaults #> '{delivery,retention}' IS NOT NULL AND (w.tenant_id, w.name) >= ($1, $2)
		ORDER BY w.tenant_id, w.name, s.key
		LIMIT $4`, func(one ownRetention) []any { return []any{one.TenantID, one.Workflow, one.Key, retentionsRead} })
}

// eachRetention deletes ended ticks of the next schedules of a walk. At the end, the next run begins a walk.
func (r *scheduleRetention) eachRetention(ctx context.Context, now time.Time, w *retentionWalk, sql string, args func(ownRetention) []any) error {
	w.begin(now)
	for range retentionsRun / retentionsRead {
		rows, _ := r.pool.Query(ctx, sql, args(w.at)...) // CollectRows reports the error
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[ownRetention])
		if err != nil {
			return fmt.Errorf("read schedules that keep ticks for a time of their own: %w", err)
		}
		if err := r.thinSchedules(ctx, now, w, found); err != nil {
			return err
		}
		if len(found) < retentionsRead {
			w.at = ownRetention{}
			return nil
		}
		w.at = found[len(found)-1]
	}
	return nil
}

// thinSchedules deletes the ended ticks of these schedules that are past their retention.
func (r *scheduleRetention) thinSchedules(ctx context.Context, now time.Time, w *retentionWalk, found []ownRetention) error {
	byTenant := map[int32][]ownRetention{}
	for _, one := range found {
		byTenant[one.TenantID] = append(byTenant[one.TenantID], one)
	}
	for tenant, some := range byTenant {
		var ids []int64
		var from, good, bad []time.Time
		for _, one := range some {
			terms, err := policy.Resolve(policy.Stored{KeepSucceeded: one.Succeeded, KeepFailed: one.Failed}, one.Defaults)
			if err != nil {
				if r.rarely.Due("retention", now) {
					r.log.Warn("ended ticks are kept longer: a newer program wrote the defaults of a workflow", "tenant", tenant, "schedule", one.ID, "error", err)
				}
				continue
			}
			succeeded, failed := history.Kept{Now: now.UTC()}.Since(record.Schedule{Succeeded: terms.KeepSucceeded, Failed: terms.KeepFailed})
			first := succeeded
			if failed.Before(first) {
				first = failed
			}
			ids, from, good, bad = append(ids, one.ID), append(from, w.from(now, first)), append(good, succeeded), append(bad, failed)
		}
		if err := r.thinTicks(ctx, tenants.ID(tenant), ids, from, good, bad); err != nil {
			return err
		}
	}
	return nil
}

// thinTicks deletes the ticks of schedules that succeeded before good, or failed before bad, with nominal times from from on. It
// subtracts their bytes from the use of the day on which they ended. A tick ends after its nominal time, so the later nominal times are
// not read. The planner does not see that the ticks to delete are of tenant $1: for a tenant that is newer than the last ANALYZE it would
// read all of its ticks.
func (r *scheduleRetention) thinTicks(ctx context.Context, tenant tenants.ID, ids []int64, from, good, bad []time.Time) error {
	err := countBatches(ctx, r.pool, `
		WITH thinned AS (
			DELETE FROM tick t
			USING (
				SELECT o.tenant_id, o.schedule_id, o.nominal_at, o.seq
				FROM unnest($2::bigint[], $3::timestamptz[], $4::timestamptz[], $7::timestamptz[]) AS i (id, good, bad, from_at)
				CROSS JOIN LATERAL (
					SELECT tenant_id, schedule_id, nominal_at, seq
					FROM tick
					WHERE tenant_id = $1 AND schedule_id = i.id AND nominal_at >= i.from_at AND nominal_at < GREATEST(i.good, i.bad)
						AND (state = $5 AND ended_at < i.good OR state = $6 AND ended_at < i.bad)
					OFFSET 0
				) o
				LIMIT $8
			) over
			WHERE `+record.SameKey("t", "over")+`
			RETURNING t.schedule_id AS id, t.ended_at AS at, 0 AS due, 0 AS fired, 0 AS good, 0 AS bad, 0 AS gone, 0 AS skipped, 0 AS retried, -1::smallint AS bucket, 0::smallint AS reason,
				-COALESCE(octet_length(t.result), 0) - COALESCE(octet_length(t.payload), 0) AS bytes
		), used AS (`+record.EndedUse("$1", "i.at", "(SELECT * FROM thinned WHERE bytes <> 0) i")+`)
		SELECT count(*) FROM thinned`,
		tenant, ids, good, bad, int16(record.Succeeded), int16(record.Failed), from)
	if err != nil {
		return fmt.Errorf("delete ended ticks: %w", err)
	}
	return nil
}
