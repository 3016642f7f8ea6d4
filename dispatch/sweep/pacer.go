package sweep

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

const (
	rateLook      = 40 * time.Millisecond  // between two turns of a workflow with ticks that wait: less than what a bucket holds
	othersRate    = 300 * time.Millisecond // a turn that is so late is taken by any process
	mostRateWait  = time.Second            // until the next look at a workflow without tokens, as its rate may be raised
	restingLook   = time.Second            // between two looks of a process that has found no turn for restAfter: each look reads as far ahead
	stoppedRate   = 5 * time.Second        // likewise of a halted or suspended tenant
	mostRateTurns = 64                     // that are read at once
	pacedTogether = time.Second            // cohorts with nominal times up to so much after the first one are served with it
)

// pacer is the memory of the loop that serves workflows with a rate.
type pacer struct {
	stirred chan struct{} // a cohort of this process began to wait
	turns   cluster.LowEnd
	found   time.Time // when a look last found a turn
}

func newPacer() pacer {
	return pacer{stirred: make(chan struct{}, 1), turns: cluster.LowEnd{
		Index: "rate_turn_due",
		First: `SELECT (SELECT due_at FROM rate_turn WHERE due_at <= (SELECT ` + postgres.Now + `) + interval '1 second' AND due_at >= $1 ORDER BY due_at LIMIT 1)`,
		Below: `SELECT (SELECT due_at FROM rate_turn WHERE due_at >= $1 AND due_at < $2 ORDER BY due_at LIMIT 1)`,
	}}
}

// stir makes the loop look at once.
func (r *pacer) stir() {
	select {
	case r.stirred <- struct{}{}:
	default:
	}
}

// keepRates hands out the ticks of paced cohorts until ctx ends.
func (s *Sweeper) keepRates(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.fair.pacer.stirred:
		case <-timer.C:
		}
		wait, err := s.ServeRates(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error("cannot hand out ticks of workflows with a rate", "error", err)
			wait = mostRateWait
		}
		timer.Reset(wait)
	}
}

// rateTurn is a workflow whose paced cohorts may be served.
type rateTurn struct {
	workflowName
	late time.Duration // since when
}

// ServeRates serves each workflow whose turn has come once, and returns the wait until the next look. A workflow belongs to the process
// that sweeps the shard to which its name hashes. If that process is late by othersRate, any other process serves the workflow.
func (s *Sweeper) ServeRates(ctx context.Context) (wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	if _, alive := s.cluster.Member.Self(); !alive {
		return lookEvery, nil
	}
	turns, wait, err := s.rateTurns(ctx)
	if err != nil {
		return lookEvery, err
	}
	var errs []error
	for _, turn := range turns {
		if err := s.serveTurn(ctx, turn.workflowName); err != nil {
			errs = append(errs, fmt.Errorf("workflow %q of tenant %d: %w", turn.name, turn.tenant, err))
		}
	}
	if len(turns) > 0 {
		wait = min(wait, rateLook)
	}
	return wait, errors.Join(errs...)
}

// rateTurns reads the turns that this process takes now, and how long it is until the next one. If there has been none for a while, the
// process looks less often. A turn that another process creates meanwhile is late by othersRate at most, as that process takes it then.
func (s *Sweeper) rateTurns(ctx context.Context) (turns []rateTurn, wait time.Duration, err error) {
	pacer := &s.fair.pacer
	from, first, err := pacer.turns.Look(ctx, s.pool, s.cluster.Horizon)
	if err != nil {
		return nil, lookEvery, err
	}
	if first.IsZero() {
		if time.Since(pacer.found) > restAfter {
			return nil, restingLook, nil
		}
		return nil, lookEvery, nil
	}
	pacer.found = time.Now()
	rows, _ := s.pool.Query(ctx, `
		SELECT tenant_id, workflow, extract(epoch FROM `+postgres.Now+` - due_at)::float8
		FROM rate_turn
		WHERE due_at BETWEEN $1 AND (SELECT `+postgres.Now+`) + $3::interval
		ORDER BY due_at
		LIMIT $2`, from, mostRateTurns, lookEvery) // ForEachRow reports the error
	mine := s.cluster.Member.Shards()
	var turn rateTurn
	var late float64
	wait = lookEvery
	_, err = pgx.ForEachRow(rows, []any{&turn.tenant, &turn.name, &late}, func() error {
		turn.late = time.Duration(late * float64(time.Second))
		if !slices.Contains(mine, turn.shard()) {
			turn.late -= othersRate
		}
		if turn.late < 0 {
			wait = min(wait, max(-turn.late, time.Millisecond))
		} else {
			turns = append(turns, turn)
		}
		return nil
	})
	return turns, wait, err
}

// shard returns the shard whose process serves the workflow.
func (n workflowName) shard() int16 {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%d %s", n.tenant, n.name)
	return int16(h.Sum32() % cohorts.Shards)
}

// pacedHead is the paced cohort of a workflow with the earliest nominal time.
type pacedHead struct {
	shard int16
	at    time.Time
}

// headOf returns the first paced cohort of a workflow; there: there is one.
func (s *Sweeper) headOf(ctx context.Context, db postgres.DB, of workflowName) (head pacedHead, there bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT shard, run_at
		FROM cohort
		WHERE tenant_id = $1 AND workflow = $2 AND paced
		ORDER BY run_at, shard, id
		LIMIT 1`, of.tenant, of.name).Scan(&head.shard, &head.at)
	if errors.Is(err, pgx.ErrNoRows) {
		return head, false, nil
	}
	if err != nil {
		return head, false, fmt.Errorf("look for paced cohorts: %w", err)
	}
	return head, true, nil
}

// serveTurn serves a workflow from the shards of its first cohorts, until its tokens or its tenant's are spent.
func (s *Sweeper) serveTurn(ctx context.Context, of workflowName) error {
	for more := true; more; {
		head, there, err := s.headOf(ctx, s.pool, of)
		if err != nil {
			return err
		}
		if !there {
			return s.endTurn(ctx, of)
		}
		if more, err = s.serveHead(ctx, of, head); err != nil {
			return err
		}
	}
	return nil
}

// endTurn deletes the turn of a workflow of which nothing waits. If a pass lets a cohort wait meanwhile, that pass creates the turn again.
func (s *Sweeper) endTurn(ctx context.Context, of workflowName) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT FROM rate_turn WHERE tenant_id = $1 AND workflow = $2 FOR UPDATE`, of.tenant, of.name); err != nil {
			return fmt.Errorf("lock the turn of a workflow: %w", err)
		}
		_, there, err := s.headOf(ctx, tx, of)
		if err != nil || there {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM rate_turn WHERE tenant_id = $1 AND workflow = $2`, of.tenant, of.name)
		return err
	})
}

// serveHead serves paced cohorts of a workflow in the shard of the first one, in one transaction, and reports whether there may be more to
// serve at once. It locks the shard, then the turn, then the bucket.
func (s *Sweeper) serveHead(ctx context.Context, of workflowName, head pacedHead) (more bool, err error) {
	var runs []chunk.Run
	var p *pass
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		more = false
		turn, err := lockTurn(ctx, tx, head.shard, of)
		if err != nil || !turn.due {
			return err
		}
		p = s.newPass(tx, head.shard, &found{now: turn.now, held: turn.held})
		if more, err = p.servePaced(ctx, of, head); err != nil {
			return err
		}
		runs, err = s.chunker.insertChunks(ctx, tx, p.made.chunks)
		return err
	})
	if err != nil {
		return false, err
	}
	s.openSwept(runs)
	if p != nil {
		p.made.chunks.EndSpans()
		s.idle.stir(len(p.made.chunks.Made))
		s.metrics.swept.Add(float64(p.made.ticks))
	}
	return more, nil
}

// lockedTurn is the turn of a workflow while its shard is locked.
type lockedTurn struct {
	due, held bool
	now       time.Time
}

// lockTurn locks the shard and the turn. The turn is not due if another process has just served it.
func lockTurn(ctx context.Context, tx pgx.Tx, shard int16, of workflowName) (t lockedTurn, err error) {
	var b pgx.Batch
	b.Queue(postgres.GenericPlans)
	cohorts.LockShard(&b, shard)
	b.Queue(`SELECT FROM rate_turn WHERE tenant_id = $1 AND workflow = $2 FOR UPDATE`, of.tenant, of.name)
	b.Queue(skewClock(`SELECT `+postgres.Now+`, COALESCE((SELECT due_at <= `+postgres.Now+` FROM rate_turn WHERE tenant_id = $1 AND workflow = $2), false),
		EXISTS (SELECT FROM workflow WHERE held_at IS NOT NULL)`), of.tenant, of.name).QueryRow(func(row pgx.Row) error {
		return row.Scan(&t.now, &t.due, &t.held)
	})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return t, fmt.Errorf("lock the turn of a workflow: %w", err)
	}
	t.now = t.now.UTC()
	return t, nil
}
