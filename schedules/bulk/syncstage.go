package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// stageTimeout is how long it may take to write or to read a batch of staged lines.
const stageTimeout = 30 * time.Second

// begin records the sync, so that upkeep clears what it staged if it dies.
func (y *syncing) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err := y.bulk.pool.QueryRow(ctx, `INSERT INTO sync (tenant_id, seen_at) VALUES ($1, `+postgres.Now+`) RETURNING id, token, seen_at`, y.tenant).Scan(&y.id, &y.token, &y.begun)
	if err != nil {
		return fmt.Errorf("begin a sync: %w", err)
	}
	return nil
}

// intact returns a fault unless the staged lines are still there and are this sync's. It keeps them until the transaction ends.
func (y *syncing) intact(ctx context.Context, db postgres.DB) error {
	done, err := db.Exec(ctx, `UPDATE sync SET seen_at = `+postgres.Now+` WHERE tenant_id = $1 AND id = $2 AND token = $3 AND NOT over`, y.tenant, y.id, y.token)
	if err != nil {
		return fmt.Errorf("look after a sync: %w", err)
	}
	if done.RowsAffected() == 0 {
		return stagingLost()
	}
	return nil
}

// end deletes what was staged if that is quick; otherwise upkeep does. After a crash another sync may have the number: its lines
// stay.
func (y *syncing) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	done, err := y.bulk.pool.Exec(ctx, `UPDATE sync SET over = true WHERE tenant_id = $1 AND id = $2 AND token = $3`, y.tenant, y.id, y.token)
	if err != nil {
		y.bulk.log.Warn("cannot delete the staged lines of a sync now: upkeep deletes them later", "error", err)
		return
	}
	if y.lines > batchLines || done.RowsAffected() == 0 {
		return
	}
	var b pgx.Batch
	b.Queue(`DELETE FROM sync_line WHERE tenant_id = $1 AND sync_id = $2`, y.tenant, y.id)
	b.Queue(`DELETE FROM sync WHERE tenant_id = $1 AND id = $2 AND token = $3`, y.tenant, y.id, y.token)
	if err := y.bulk.pool.SendBatch(ctx, &b).Close(); err != nil {
		y.bulk.log.Warn("cannot delete the staged lines of a sync now: upkeep deletes them later", "error", err)
	}
}

// syncSilent is after how long without a sign of life a sync counts as dead.
const syncSilent = time.Hour

// ClearSyncs deletes the staged lines of syncs that are over or dead, at most limit of them, and returns how many. It deletes a sync
// after its last line.
func ClearSyncs(ctx context.Context, db postgres.DB, limit int) (lines int64, err error) {
	for i, sql := range []string{
		`UPDATE sync SET over = true WHERE NOT over AND seen_at < (SELECT ` + postgres.Now + `) - $1::interval`,
		`DELETE FROM sync_line
		WHERE ctid = ANY (ARRAY (
			SELECT l.ctid
			FROM sync s
			CROSS JOIN LATERAL (SELECT ctid FROM sync_line WHERE tenant_id = s.tenant_id AND sync_id = s.id OFFSET 0) l
			WHERE s.over
			LIMIT $1))`,
		`DELETE FROM sync s
		WHERE s.over AND NOT EXISTS (SELECT FROM sync_line l WHERE l.tenant_id = s.tenant_id AND l.sync_id = s.id OFFSET 0)`,
	} {
		args := [][]any{{syncSilent}, {limit}, nil}[i]
		done, err := db.Exec(ctx, sql, args...)
		if err != nil {
			return 0, fmt.Errorf("clear syncs: %w", err)
		}
		if i == 1 {
			lines = done.RowsAffected()
		}
	}
	return lines, nil
}

// stage reads the body to its end, and stores its good lines and the faults of the others.
func (y *syncing) stage(ctx context.Context, body io.ReadCloser) error {
	defer closeAtEnd(ctx, body)()
	r := newReader(y.bulk, y.tenant, body)
	r.scope = &y.params
	for {
		b, err := r.next(ctx)
		if paced := y.bulk.wait(ctx, y.tenant, b); paced != nil {
			return paced
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := tenants.CheckAuthority(ctx); err != nil {
			return err
		}
		if b != nil && len(b.results) > 0 {
			if err := y.stageBatch(ctx, b); err != nil {
				return err
			}
			y.lines += len(b.results)
		}
		if err != nil {
			return nil
		}
	}
}

func (y *syncing) stageBatch(ctx context.Context, b *batch) error {
	ctx, cancel := context.WithTimeout(ctx, stageTimeout)
	defer cancel()
	n := len(b.results)
	numbers, workflows, keys, bodies, outcomes := make([]int32, n), make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	for _, it := range b.items {
		workflows[it.place], keys[it.place], bodies[it.place] = &it.Workflow, &it.Key, new(string(it.text))
	}
	for i, r := range b.results {
		numbers[i] = int32(r.Line)
		if bodies[i] != nil {
			continue
		}
		told, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("stage a line: %w", err)
		}
		outcomes[i] = new(string(told))
	}
	return pgx.BeginFunc(ctx, y.bulk.pool, func(tx pgx.Tx) error {
		if err := y.intact(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO sync_line (tenant_id, sync_id, line, workflow, key, body, outcome)
			SELECT $1, $2, line, workflow, key, body, outcome
			FROM unnest($3::int[], $4::text[], $5::text[], $6::text[], $7::text[]) AS n (line, workflow, key, body, outcome)`,
			y.tenant, y.id, numbers, workflows, keys, bodies, outcomes)
		if err != nil {
			return fmt.Errorf("stage lines: %w", err)
		}
		return nil
	})
}

// staged is a line as it was staged: its text, or what became of it already.
type staged struct {
	Line       int
	Body       *string
	Outcome    *string
	Superseded bool // a later line is of the same schedule
}

// next returns the staged lines after those that r has read, as a batch.
func (y *syncing) next(ctx context.Context, r *reader) (*batch, error) {
	quotas, err := y.bulk.quotas(ctx, y.tenant)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stageTimeout)
	defer cancel()
	found, err := y.readStaged(ctx, r.line)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, stagingLost()
	}
	b := &batch{}
	r.reading.Refresh()
	for _, l := range found {
		r.line = l.Line
		if err := b.addStaged(ctx, r, l, quotas); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// readStaged reads the staged lines after a number, as many as are stored together.
func (y *syncing) readStaged(ctx context.Context, after int) (found []staged, err error) {
	err = pgx.BeginFunc(ctx, y.bulk.pool, func(tx pgx.Tx) error {
		if err := y.intact(ctx, tx); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			SELECT l.line, l.body, l.outcome,
				EXISTS (SELECT FROM sync_line o WHERE o.tenant_id = $1 AND o.sync_id = $2 AND o.workflow = l.workflow AND o.key = l.key AND o.line > l.line) AS superseded
			FROM (
				SELECT line, workflow, key, body, outcome, sum(COALESCE(octet_length(body), 0)) OVER (ORDER BY line) - COALESCE(octet_length(body), 0) AS before
				FROM (
					SELECT line, workflow, key, body, outcome
					FROM sync_line
					WHERE tenant_id = $1 AND sync_id = $2 AND line > $3
					ORDER BY line
					LIMIT $4
				) page
			) l
			WHERE l.before < $5
			ORDER BY l.line`, y.tenant, y.id, after, batchLines, batchBytes) // CollectRows reports the error
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[staged])
		if err != nil {
			return fmt.Errorf("read staged lines: %w", err)
		}
		return nil
	})
	return found, err
}

// addStaged adds a staged line to the batch: as an item to be stored, or with the result that it has already.
func (b *batch) addStaged(ctx context.Context, r *reader, l staged, quotas tenants.Quotas) error {
	result := Result{Line: l.Line}
	if l.Outcome != nil {
		if err := json.Unmarshal([]byte(*l.Outcome), &result); err != nil {
			return fmt.Errorf("staged line %d: %w", l.Line, err)
		}
		b.results = append(b.results, result)
		return nil
	}
	it := &item{place: len(b.results)}
	err := r.parse(ctx, it, []byte(*l.Body), quotas)
	result.Workflow, result.Key = it.Workflow, it.Key
	f, refused := errors.AsType[*fault.Error](err)
	switch {
	case refused: // the quotas are others by now
		result.Result, result.Error = schedules.Failed, faultOf(f)
	case err != nil:
		return err
	case l.Superseded:
		result.Result = Duplicate
	default:
		b.items = append(b.items, it)
	}
	b.results = append(b.results, result)
	return nil
}

// listed returns those of some schedules that the body names. It proves first that the staged lines are there: else nothing is listed.
func (y *syncing) listed(ctx context.Context, tx pgx.Tx, some []schedules.Position) (map[schedules.Position]bool, error) {
	if err := y.intact(ctx, tx); err != nil {
		return nil, err
	}
	workflows, keys := make([]string, len(some)), make([]string, len(some))
	for i, one := range some {
		workflows[i], keys[i] = one.Workflow, one.Key
	}
	rows, _ := tx.Query(ctx, `
		SELECT n.workflow, n.key
		FROM unnest($3::text[], $4::text[]) AS n (workflow, key)
		CROSS JOIN LATERAL (SELECT FROM sync_line WHERE tenant_id = $1 AND sync_id = $2 AND workflow = n.workflow AND key = n.key LIMIT 1) l`,
		y.tenant, y.id, workflows, keys) // ForEachRow reports the error
	listed := make(map[schedules.Position]bool, len(some))
	var at schedules.Position
	_, err := pgx.ForEachRow(rows, []any{&at.Workflow, &at.Key}, func() error {
		listed[at] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find what is listed: %w", err)
	}
	return listed, nil
}
