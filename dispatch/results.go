package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
)

const (
	resultsBatch = 100
	resultsAhead = 100 // requests whose results wait to be written; then pushing waits too
	resultsWait  = 20 * time.Millisecond
	writeLimit   = 10 * time.Second
)

// results writes what pushes came to, in batches, a few milliseconds behind.
type results struct {
	d       *Dispatch
	in      chan []outcome
	working sync.WaitGroup
}

func newResults(d *Dispatch) *results {
	return &results{d: d, in: make(chan []outcome, resultsAhead)}
}

func (r *results) add(outcomes []outcome) { r.in <- outcomes }

func (r *results) start() { r.working.Go(r.work) }

// close writes what has come, and ends. Nothing is added after it.
func (r *results) close() {
	close(r.in)
	r.working.Wait()
}

func (r *results) work() {
	for first := range r.in {
		batch := first
		timer := time.NewTimer(resultsWait)
	gather:
		for len(batch) < resultsBatch {
			select {
			case more, open := <-r.in:
				if !open {
					break gather
				}
				batch = append(batch, more...)
			case <-timer.C:
				break gather
			}
		}
		timer.Stop()
		r.write(batch)
	}
}

// write writes a batch, and again until it is written or this process is held for dead: others then send them again.
func (r *results) write(batch []outcome) {
	byTenant := map[tenants.ID][]outcome{}
	for _, o := range batch {
		byTenant[o.tenant] = append(byTenant[o.tenant], o)
	}
	for tenant, outcomes := range byTenant {
		for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
			err := r.writeTenant(tenant, outcomes)
			if err == nil {
				break
			}
			r.d.Log.Error("cannot write results", "tenant", tenant, "ticks", len(outcomes), "error", err)
			if _, alive := r.d.process.self(); !alive {
				break
			}
			time.Sleep(wait)
		}
	}
}

func (r *results) writeTenant(tenant tenants.ID, outcomes []outcome) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	self, _ := r.d.process.self()
	return postgres.Retry(ctx, func() error {
		err := pgx.BeginFunc(ctx, r.d.Pool, func(tx pgx.Tx) error {
			mine, now, err := ownedChunks(ctx, tx, self, outcomes)
			if err != nil {
				return err
			}
			return r.writeOwned(ctx, tx, tenant, now, outcomes, mine)
		})
		if err != nil {
			return err
		}
		sabotage.Crash("results.committed")
		return r.finishChunks(ctx, self, outcomes)
	})
}

// ownedChunks are the chunks of the outcomes that are this process's still, in the epoch in which it sent them: what a
// stale owner has to say changes nothing. They are locked against being taken until the results are written.
func ownedChunks(ctx context.Context, tx pgx.Tx, self int64, outcomes []outcome) (mine map[int64]bool, now time.Time, err error) {
	epochs := map[int64]int32{}
	for _, o := range outcomes {
		epochs[o.chunk] = o.epoch
	}
	var ids []int64
	var wanted []int32
	for id, epoch := range epochs {
		ids, wanted = append(ids, id), append(wanted, epoch)
	}
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return nil, now, err
	}
	rows, err := tx.Query(ctx, `
		SELECT c.id
		FROM unnest($1::bigint[], $2::int[]) AS i (id, epoch)
		JOIN chunk c ON c.id = i.id AND c.epoch = i.epoch AND c.owner = $3
		ORDER BY c.id
		FOR SHARE OF c`, ids, wanted, self)
	if err != nil {
		return nil, now, fmt.Errorf("look whose chunks they are: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, now, fmt.Errorf("look whose chunks they are: %w", err)
	}
	mine = map[int64]bool{}
	for _, id := range found {
		mine[id] = true
	}
	return mine, now.UTC(), nil
}

func (r *results) writeOwned(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, outcomes []outcome, mine map[int64]bool) error {
	var endings []ending
	var b pgx.Batch
	gone := map[string]bool{}
	for _, o := range outcomes {
		switch {
		case !mine[o.chunk]:
		case !o.held.IsZero():
			queueHold(&b, tenant, o.tick.Shard, try{TickKey: o.TickKey, Attempt: o.attempt}, "endpoint", o.held)
		case !o.awaited.IsZero():
			queueHold(&b, tenant, o.tick.Shard, try{TickKey: o.TickKey, Attempt: o.attempt}, "answer", o.awaited)
		default:
			endings = append(endings, o.ending)
		}
		if o.gone && !gone[o.endpoint.name] {
			gone[o.endpoint.name] = true
			queueDisable(&b, o.endpoint)
		}
	}
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("write answers awaited: %w", err)
		}
	}
	ended, err := r.d.end(ctx, tx, tenant, now, endings)
	if err != nil {
		return err
	}
	for _, state := range ended {
		r.d.Metrics.ended.WithLabelValues(state.String()).Inc()
	}
	sabotage.Crash("results.before_commit")
	return nil
}

// finishChunks marks the chunks done of which everything has a result.
func (r *results) finishChunks(ctx context.Context, self int64, outcomes []outcome) error {
	type sent struct {
		chunk int64
		epoch int32
	}
	counts := map[sent]int{}
	for _, o := range outcomes {
		counts[sent{o.chunk, o.epoch}]++
	}
	var done []int64
	for s, n := range counts {
		if r.d.sender.settled(s.chunk, s.epoch, n) {
			done = append(done, s.chunk)
		}
	}
	if len(done) == 0 {
		return nil
	}
	_, err := r.d.Pool.Exec(ctx, `UPDATE chunk SET done_at = clock_timestamp() WHERE id = ANY($1) AND owner = $2`, done, self)
	if err != nil {
		// Left open, it is taken by another process when this one ends, which finds nothing to send.
		r.d.Log.Warn("cannot mark chunks done", "error", err)
	}
	return nil
}
