package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const day = 24 * time.Hour

// kept says which ticks of a tenant are shown: what is past its retention is hidden at once, and deleted later.
type kept struct {
	now      time.Time
	oldest   time.Time // nominal time of ticks
	attempts time.Time // end of attempts
}

func (d *Dispatch) kept(ctx context.Context, tenant tenants.ID) (k kept, err error) {
	quotas, err := d.Quotas(ctx, tenant)
	if err != nil {
		return k, err
	}
	k.now = time.Now().UTC()
	k.oldest = k.now.Add(-time.Duration(quotas.TickRetentionDays) * day)
	k.attempts = k.now.Add(-time.Duration(quotas.AttemptRetentionDays) * day)
	return k, nil
}

// over tells whether a tick is past its retention: its tenant's, or what its schedule says of those that ended so.
func (k kept) over(t *record.Tick, w whose) bool {
	if t.NominalAt.Before(k.oldest) {
		return true
	}
	switch t.State {
	case record.Succeeded:
		return w.succeeded > 0 && t.EndedAt.Before(k.now.Add(-w.succeeded))
	case record.Failed:
		return w.failed > 0 && t.EndedAt.Before(k.now.Add(-w.failed))
	}
	return false
}

// since is from when on ended ticks of a schedule are kept: those that succeeded, and those that failed.
func (k kept) since(w whose) (succeeded, failed time.Time) {
	if w.succeeded > 0 {
		succeeded = k.now.Add(-w.succeeded)
	}
	if w.failed > 0 {
		failed = k.now.Add(-w.failed)
	}
	return succeeded, failed
}

// whose is the schedule of a tick: its name, and how long its ended ticks are kept; 0 is as long as the
// tenant's are.
type whose struct {
	workflow, key     string
	succeeded, failed time.Duration
}

// whose reads schedules by number; a deleted one is as it was last.
func (d *Dispatch) whose(ctx context.Context, db postgres.DB, tenant tenants.ID, ids []int64) (map[int64]whose, error) {
	found := make(map[int64]whose, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	rows, err := db.Query(ctx, `
		SELECT i.id, COALESCE(s.workflow, r.workflow), COALESCE(s.key, r.key),
			COALESCE(s.keep_succeeded_s, r.keep_succeeded_s), COALESCE(s.keep_failed_s, r.keep_failed_s), w.defaults
		FROM (SELECT DISTINCT id FROM unnest($2::bigint[]) AS n (id)) i
		LEFT JOIN schedule s ON s.tenant_id = $1 AND s.id = i.id
		LEFT JOIN LATERAL (
			SELECT workflow, key, keep_succeeded_s, keep_failed_s
			FROM revision
			WHERE tenant_id = $1 AND schedule_id = i.id AND s.id IS NULL
			ORDER BY version DESC
			LIMIT 1
		) r ON true
		LEFT JOIN workflow w ON w.tenant_id = $1 AND w.name = COALESCE(s.workflow, r.workflow)
		WHERE s.id IS NOT NULL OR r.workflow IS NOT NULL`, tenant, ids)
	if err != nil {
		return nil, fmt.Errorf("read schedules of ticks: %w", err)
	}
	var id int64
	var w whose
	var good, bad *int32
	var defaults []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &w.workflow, &w.key, &good, &bad, &defaults}, func() error {
		own := policy.Stored{KeepSucceeded: good, KeepFailed: bad}
		terms, err := policy.Resolve(own, defaults)
		if err != nil { // as long as the tenant's, until they can be read
			terms = policy.BuiltIn().With(own)
		}
		w.succeeded, w.failed = terms.KeepSucceeded, terms.KeepFailed
		found[id] = w
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read schedules of ticks: %w", err)
	}
	return found, nil
}
