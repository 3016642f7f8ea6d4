package schedules

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// ActionPreview is what an action would do now. Matched is how many schedules it picks. Changed is how many of them it would change, or
// may change if it patches them. Sample holds the first of those that it picks.
type ActionPreview struct {
	Matched int64     `json:"matched"`
	Changed int64     `json:"changed"`
	Sample  []Summary `json:"sample"`
}

const mostSampled = 20

// DryRun returns what an action would do, and changes nothing.
func (a *Actions) DryRun(ctx context.Context, tenant tenants.ID, p ActionParams) (out ActionPreview, err error) {
	if err := p.check(); err != nil {
		return out, err
	}
	var from string
	var args []any
	if p.Filter == nil {
		at, err := named(ctx, a.Schedules.Pool, tenant, p.Keys)
		if err != nil {
			return out, err
		}
		from, args = `schedule s WHERE s.tenant_id = $1 AND s.id = ANY($2)`, []any{tenant, at.IDs}
	} else if from, args, err = a.picked(ctx, tenant, *p.Filter); err != nil {
		return out, err
	}
	counting, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	sample, _ := a.Schedules.Pool.Query(counting, `SELECT s.id FROM `+from+` LIMIT `+strconv.Itoa(mostSampled), args...) // CollectRows reports the error
	ids, err := pgx.CollectRows(sample, pgx.RowTo[int64])
	if err != nil {
		return out, fmt.Errorf("sample schedules: %w", err)
	}
	changes, args := p.changes(args)
	if err := a.Schedules.Pool.QueryRow(counting, `SELECT count(*), count(*) FILTER (WHERE `+changes+`) FROM `+from, args...).Scan(&out.Matched, &out.Changed); err != nil {
		return out, fmt.Errorf("count schedules: %w", err)
	}
	out.Sample, _, err = a.Schedules.Summaries(ctx, tenant, ids)
	return out, err
}

// picked returns the tables and the conditions of the schedules s that a filter picks.
func (a *Actions) picked(ctx context.Context, tenant tenants.ID, wanted ActionFilter) (from string, args []any, err error) {
	if wanted.Operation != "" {
		if err := a.mayUndo(ctx, a.Schedules.Pool, tenant, wanted.Operation); err != nil {
			return "", nil, err
		}
		number, err := a.undone(wanted.Operation)
		return pausedHere, []any{tenant, number}, err
	}
	f := wanted.filter()
	if f.Subject != "" {
		args = []any{tenant, f.Subject}
		from = `schedule s WHERE s.id = ANY (ARRAY (
				SELECT id FROM schedule WHERE tenant_id = $1 AND subject = $2
				UNION ALL
				SELECT id FROM schedule WHERE tenant_id = $1 AND key = $2 AND subject IS NULL)) AND s.tenant_id = $1`
		if f.Workflow != "" {
			from, args = from+` AND s.workflow = $3`, append(args, f.Workflow)
		}
		from, args = f.pick(from, args)
		return from, args, nil
	}
	by, tables := f.source()
	if f.Label == "" && !f.Failing {
		tables = "schedule s" // the condition of the status follows
	}
	where, args := f.where(by, tenant, Position{}, nil)
	where, args = f.pick(where, args)
	if !f.DueBefore.IsZero() {
		args = append(args, f.DueBefore)
		where += ` AND EXISTS (SELECT FROM cohort c WHERE c.shard = s.shard AND c.id = s.cohort_id AND c.tenant_id = s.tenant_id AND c.next_at < $` + strconv.Itoa(len(args)) + `)`
	}
	return tables + ` WHERE ` + where, args, nil
}

// changes returns the condition of the schedules s that the action changes.
func (p ActionParams) changes(args []any) (string, []any) {
	switch p.Action {
	case actPause:
		n := len(args)
		args = append(args, p.Until, p.Note)
		return fmt.Sprintf(`s.status IN ('active', 'paused') AND NOT (s.status = 'paused' AND s.paused_by IS NULL
			AND s.paused_until IS NOT DISTINCT FROM $%d::timestamptz AND s.status_note IS NOT DISTINCT FROM $%d::text)`, n+1, n+2), args
	case actResume:
		return shownAs[policy.Paused], args
	case actSkip, actRetime:
		return `s.cohort_id IS NOT NULL`, args
	}
	return `true`, args
}
