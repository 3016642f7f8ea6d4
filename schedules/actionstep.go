package schedules

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
)

// candidate is a schedule that may be picked.
type candidate struct {
	ID       int64
	Shard    int16
	Workflow string
	Key      string
	Subject  string
	Matches  bool // what no index covers was right when it was read; status and time are checked after it is locked
}

// place returns where the candidate is in the order of workflow and key.
func (c candidate) place() Position { return Position{Workflow: c.Workflow, Key: c.Key} }

const candidateColumns = `s.id, s.shard, s.workflow, s.key, COALESCE(s.subject, s.key) AS subject`

// candidates returns up to limit next schedules, by workflow and key, in the range of the index that a filter picks.
func candidates(ctx context.Context, tx pgx.Tx, tenant tenants.ID, f Filter, after Position, limit int) ([]candidate, error) {
	f.Status, f.DueBefore = "", time.Time{}
	if f.Subject != "" {
		begin, of, args := f.ofSubject(tenant, after, limit)
		return collectCandidates(ctx, tx, begin+`
			SELECT `+candidateColumns+`, true AS matches
			FROM (`+of+`) x
			JOIN schedule s ON s.tenant_id = $1 AND s.id = x.id
			ORDER BY s.workflow, s.key`, args)
	}
	by, tables := f.source()
	where, args := f.where(by, tenant, after, nil)
	matches, args := f.pick("true", args)
	args = append(args, limit)
	return collectCandidates(ctx, tx, `
		SELECT `+candidateColumns+`, `+matches+` AS matches
		FROM `+tables+`
		WHERE `+where+`
		ORDER BY `+by+`.workflow, `+by+`.key
		LIMIT $`+strconv.Itoa(len(args)), args)
}

func collectCandidates(ctx context.Context, tx pgx.Tx, sql string, args []any) ([]candidate, error) {
	rows, _ := tx.Query(ctx, sql, args...) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[candidate])
	if err != nil {
		return nil, fmt.Errorf("find schedules: %w", err)
	}
	return found, nil
}

// numbered returns schedules by their numbers.
func numbered(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ids []int64) ([]candidate, error) {
	return collectCandidates(ctx, tx, `SELECT `+candidateColumns+`, true AS matches FROM schedule s WHERE s.tenant_id = $1 AND s.id = ANY($2)`, []any{tenant, ids})
}

// fewTogether is how many schedules a step of an action does that needs several statements for each.
const fewTogether = 200

// actStep acts on the next candidates.
func (a *Actions) actStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var work actionWork
	var at actionPlace
	if _, err := op.Read(&work, &at); err != nil {
		return false, err
	}
	if at.Absent > 0 {
		op.Count("not_found", int64(at.Absent))
		at.Absent = 0
	}
	limit := mostTogether
	if work.Action == actSkip || work.Action == actPatch || work.Action == actTrigger {
		limit = fewTogether
	}
	ctx = trace.With(ctx, trace.Of(a.Schedules.IDs.Operation(op.ID))) // the ticks of a trigger continue it, and are found by it
	found, done, err := a.next(ctx, tx, op, work, &at, limit)
	if err != nil {
		return false, err
	}
	b := a.Schedules.newBatch(tx, change{tenant: op.Tenant, by: op.By})
	acts := acting{batch: b, action: work.Action, asked: asked{work: &work, operation: op, trigger: a.trigger}}
	if work.Filter != nil {
		if acts.asked.undoes, err = a.undone(work.Filter.Operation); err != nil {
			return false, err
		}
	}
	if len(found) > 0 {
		if err := acts.run(ctx, found, work.picks(op)); err != nil {
			return false, err
		}
	}
	acts.count(op)
	at.refuse(op, acts.refusals)
	return done, op.Keep(at)
}

// refuse adds the codes of refused patches to the result of the operation.
func (at *actionPlace) refuse(op *operations.Operation, codes map[string]int64) {
	if len(codes) > 0 && at.Refused == nil {
		at.Refused = map[string]int64{}
	}
	for code, n := range codes {
		at.Refused[code] += n
	}
	if at.Refused != nil {
		op.Result = map[string]any{"refused": at.Refused}
	}
}

// next returns the next candidates of an action, and moves its place behind them.
func (a *Actions) next(ctx context.Context, tx pgx.Tx, op *operations.Operation, work actionWork, at *actionPlace, limit int) (found []candidate, done bool, err error) {
	switch {
	case work.Filter == nil:
		n := min(limit, len(at.IDs))
		found, err = numbered(ctx, tx, op.Tenant, at.IDs[:n])
		at.IDs = at.IDs[n:]
		return found, len(at.IDs) == 0, err
	case work.Filter.Operation != "":
		number, err := a.undone(work.Filter.Operation)
		if err != nil {
			return nil, false, err
		}
		if found, err = pausedBy(ctx, tx, op.Tenant, number, at.ID, limit); err != nil || len(found) == 0 {
			return nil, true, err
		}
		at.ID = found[len(found)-1].ID
	default:
		if found, err = candidates(ctx, tx, op.Tenant, work.Filter.filter(), at.Position, limit); err != nil || len(found) == 0 {
			return nil, true, err
		}
		at.Position = found[len(found)-1].place()
	}
	done = len(found) < limit
	matching := found[:0]
	for _, c := range found {
		if c.Matches {
			matching = append(matching, c)
		}
	}
	return matching, done, nil
}

// picks returns what the locked row of a candidate must fulfil. next is when the schedule fires next.
func (work actionWork) picks(op *operations.Operation) func(r *row, next *time.Time) bool {
	if work.Filter == nil {
		return func(*row, *time.Time) bool { return true }
	}
	f := work.Filter.filter()
	return func(r *row, next *time.Time) bool {
		return !r.CreatedAt.After(op.Begun) && (f.Status == "" || f.Status == r.Status) && (f.DueBefore.IsZero() || next != nil && next.Before(f.DueBefore))
	}
}

// walk is an action on the schedules of a filter that are picked, in the order of workflow and key, after a position. next is when a
// schedule fires next.
type walk struct {
	filter Filter
	after  Position
	action string
	picked func(r *row, next *time.Time) bool
}

// step does the action of a walk to the next candidates, counts what came of it, and returns the place of the last.
func (s *Schedules) step(ctx context.Context, tx pgx.Tx, op *operations.Operation, w walk) (done bool, last Position, err error) {
	found, err := candidates(ctx, tx, op.Tenant, w.filter, w.after, mostTogether)
	if err != nil || len(found) == 0 {
		return true, w.after, err
	}
	a := acting{batch: s.newBatch(tx, change{tenant: op.Tenant, by: op.By}), action: w.action}
	if err := a.run(ctx, found, w.picked); err != nil {
		return false, w.after, err
	}
	a.count(op)
	return len(found) < mostTogether, found[len(found)-1].place(), nil
}

// count adds what became of the schedules to the counts of an operation.
func (a *acting) count(op *operations.Operation) {
	for what, n := range a.counts {
		op.Done += n
		op.Count(what, n)
	}
}

// lockShards locks the shards of candidates, in ascending order.
func lockShards(ctx context.Context, tx pgx.Tx, found []candidate) error {
	shards := make([]int16, len(found))
	for i, c := range found {
		shards[i] = c.Shard
	}
	_, err := tx.Exec(ctx, `
		SELECT pg_advisory_xact_lock_shared($1, shard)
		FROM (SELECT DISTINCT n AS shard FROM unnest($2::smallint[]) n ORDER BY 1) s`, postgres.ShardLocks, shards)
	if err != nil {
		return fmt.Errorf("lock shards: %w", err)
	}
	return nil
}
