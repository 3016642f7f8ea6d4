package push

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const (
	resultsBatch   = 100 // results written at once; fewer after resultsWait
	mostResults    = 500 // results in one transaction; while so many wait, pushing waits too
	resultsWriters = 2
	resultsWait    = 20 * time.Millisecond
	WriteLimit     = 10 * time.Second
)

// results writes the outcomes of requests in batches, a few milliseconds later.
type results struct {
	d       *Pusher
	writers sync.WaitGroup

	mu      sync.Mutex  // of what follows
	waiting [][]outcome // those of one request each
	ticks   int         // how many wait
	aside   aside
	closed  bool
	came    sync.Cond     // a writer may have something to do
	room    sync.Cond     // some of the waiting results are being written
	enough  chan struct{} // a batch is full
}

func newResults(d *Pusher) *results {
	r := &results{d: d, aside: newAside(), enough: make(chan struct{}, 1)}
	r.came.L, r.room.L = &r.mu, &r.mu
	return r
}

// add queues the outcomes of one request, and waits while too many are queued. Outcomes of a tenant whose results are aside do not
// wait.
func (r *results) add(outcomes []outcome) {
	tenant := outcomes[0].Tenant
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.ticks >= mostResults && r.aside.of[tenant] == nil {
		r.room.Wait()
	}
	if r.aside.of[tenant] != nil {
		r.setAside(tenant, outcomes)
		return
	}
	r.waiting, r.ticks = append(r.waiting, outcomes), r.ticks+len(outcomes)
	r.came.Signal()
	if r.ticks >= resultsBatch {
		select {
		case r.enough <- struct{}{}:
		default:
		}
	}
}

func (r *results) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.aside.cancel = cancel
	for range resultsWriters {
		r.writers.Go(r.work)
		r.aside.writers.Go(func() { r.writeAside(ctx) })
	}
}

// close writes the waiting results, and ends. Nothing is added after it.
func (r *results) close() {
	r.mu.Lock()
	r.closed = true
	r.came.Broadcast()
	r.mu.Unlock()
	r.writers.Wait()
	r.aside.cancel()
	r.aside.writers.Wait()
	r.finishAside()
}

func (r *results) work() {
	for {
		batch := r.next()
		if len(batch) == 0 {
			return
		}
		r.write(batch)
	}
}

// next waits for the results to write next; nil once there are no more.
func (r *results) next() (batch []outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for waited := false; ; {
		switch {
		case len(r.waiting) == 0 && r.closed:
			return nil
		case len(r.waiting) == 0:
			waited = false
			r.came.Wait()
		case r.ticks < resultsBatch && !waited && !r.closed:
			waited = true
			r.gather()
		default:
			return r.take()
		}
	}
}

// gather waits until a batch is full or resultsWait has passed.
func (r *results) gather() {
	r.mu.Unlock()
	defer r.mu.Lock()
	timer := time.NewTimer(resultsWait)
	defer timer.Stop()
	select {
	case <-r.enough:
	case <-timer.C:
	}
}

func (r *results) take() (batch []outcome) {
	for len(r.waiting) > 0 && (len(batch) == 0 || len(batch)+len(r.waiting[0]) <= mostResults) {
		batch = append(batch, r.waiting[0]...)
		r.waiting = r.waiting[1:]
	}
	r.ticks -= len(batch)
	r.room.Broadcast()
	if len(r.waiting) > 0 {
		r.came.Signal()
	}
	return batch
}

// write writes a batch, tenant by tenant. It sets the results of a tenant that cannot be written aside, so that they delay no other
// tenant. If the others count this process as dead, it drops them: others send the ticks again.
func (r *results) write(batch []outcome) {
	byTenant := map[tenants.ID][]outcome{}
	for _, o := range batch {
		byTenant[o.Tenant] = append(byTenant[o.Tenant], o)
	}
	for tenant, outcomes := range byTenant {
		if r.passed(tenant, outcomes) {
			continue
		}
		err := r.writeTenant(context.Background(), tenant, outcomes, firstLockWait)
		if err == nil {
			continue
		}
		if _, alive := r.d.member.Self(); !alive {
			r.d.log.Error("cannot write results; other processes send their ticks again", "tenant", tenant, "ticks", len(outcomes), "error", err)
			continue
		}
		r.d.log.Warn("cannot write results yet", "tenant", tenant, "ticks", len(outcomes), "error", err)
		r.mu.Lock()
		r.setAside(tenant, outcomes)
		r.room.Broadcast() // for those of the tenant
		r.mu.Unlock()
	}
}

// passed sets results aside if others of their tenant are aside, and reports whether it did.
func (r *results) passed(tenant tenants.ID, outcomes []outcome) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aside.of[tenant] == nil {
		return false
	}
	r.setAside(tenant, outcomes)
	return true
}

// writeTenant writes results of one tenant. It waits for a lock of another transaction at most lockWait.
func (r *results) writeTenant(ctx context.Context, tenant tenants.ID, outcomes []outcome, lockWait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, WriteLimit)
	defer cancel()
	self, _ := r.d.member.Self()
	return postgres.Retry(ctx, func() error {
		err := pgx.BeginFunc(ctx, r.d.pool, func(tx pgx.Tx) error {
			mine, now, err := ownedChunks(ctx, tx, self, outcomes, lockWait)
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

// Sending is a chunk in the epoch in which this process sends it. A chunk that the process lost and took back has results of both
// epochs.
type Sending struct {
	Chunk int64
	Epoch int32
}

func (o *outcome) sending() Sending { return Sending{o.Chunk, o.Epoch} }

// ownedChunks returns those of the chunks that this process still owns in the epoch in which it sent them: results of a stale owner
// change nothing. It locks them against a take-over until the transaction ends. From here on the transaction waits for each lock at
// most lockWait.
func ownedChunks(ctx context.Context, tx pgx.Tx, self int64, outcomes []outcome, lockWait time.Duration) (mine map[Sending]bool, now time.Time, err error) {
	asked := map[Sending]bool{}
	var ids []int64
	var epochs []int32
	for i := range outcomes {
		if s := outcomes[i].sending(); !asked[s] {
			asked[s] = true
			ids, epochs = append(ids, s.Chunk), append(epochs, s.Epoch)
		}
	}
	mine = map[Sending]bool{}
	var b pgx.Batch
	b.Queue(`SELECT `+postgres.Now+` FROM set_config('lock_timeout', $1::bigint::text, true) l, `+postgres.SetGenericPlans+` p`, lockWait.Milliseconds()).QueryRow(func(row pgx.Row) error {
		return row.Scan(&now)
	})
	b.Queue(`
		SELECT c.id, c.epoch
		FROM unnest($1::bigint[], $2::int[]) AS i (id, epoch)
		JOIN chunk c ON c.id = i.id AND c.epoch = i.epoch AND c.owner = $3
		ORDER BY c.id
		FOR SHARE OF c`, ids, epochs, self).Query(func(rows pgx.Rows) error {
		var s Sending
		_, err := pgx.ForEachRow(rows, []any{&s.Chunk, &s.Epoch}, func() error { mine[s] = true; return nil })
		return err
	})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, now, fmt.Errorf("look whose chunks they are: %w", err)
	}
	return mine, now.UTC(), nil
}

func (r *results) writeOwned(ctx context.Context, tx pgx.Tx, tenant tenants.ID, now time.Time, outcomes []outcome, mine map[Sending]bool) error {
	var endings []finish.Ending
	var holds []record.Delayed
	var b pgx.Batch
	gone := map[string]bool{}
	for _, o := range outcomes {
		switch {
		case !mine[o.sending()]:
		case !o.held.IsZero():
			holds = append(holds, record.Delayed{Try: record.Try{TickKey: o.TickKey, Attempt: o.Attempt}, Shard: o.Tick.Shard, Why: "endpoint", Due: o.held})
		case !o.awaited.IsZero():
			holds = append(holds, record.Delayed{Try: record.Try{TickKey: o.TickKey, Attempt: o.Attempt}, Shard: o.Tick.Shard, Why: "answer", Due: o.awaited})
		default:
			endings = append(endings, o.Ending)
		}
		if o.gone && !gone[o.Endpoint.Name] {
			gone[o.Endpoint.Name] = true
			QueueDisable(&b, o.Endpoint)
		}
	}
	record.QueueAllDelayed(&b, tenant, holds)
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("write answers awaited: %w", err)
		}
	}
	ended, err := r.d.finish.End(ctx, tx, tenant, now, endings)
	if err != nil {
		return err
	}
	for _, state := range ended {
		r.d.metrics.ended.WithLabelValues(state.String()).Inc()
	}
	sabotage.Crash("results.before_commit")
	return nil
}

// finishChunks marks the chunks that have all their results as done. A chunk that is this process's again, in a later epoch, is sent
// again.
func (r *results) finishChunks(ctx context.Context, self int64, outcomes []outcome) error {
	counts := map[Sending]int{}
	for i := range outcomes {
		counts[outcomes[i].sending()]++
	}
	var ids []int64
	var epochs []int32
	for s, n := range counts {
		if r.d.sender.settled(s.Chunk, s.Epoch, n) {
			ids, epochs = append(ids, s.Chunk), append(epochs, s.Epoch)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(postgres.GenericPlans)
	b.Queue(`
		UPDATE chunk c
		SET done_at = `+postgres.Now+`
		FROM unnest($1::bigint[], $2::int[]) AS i (id, epoch)
		WHERE c.id = i.id AND c.epoch = i.epoch AND c.owner = $3`, ids, epochs, self)
	if err := r.d.pool.SendBatch(ctx, &b).Close(); err != nil {
		r.d.sender.chunks.doubts.Add(ids) // this process takes these chunks again, and finds nothing to send
		r.d.log.Warn("cannot mark chunks done", "error", err)
	}
	return nil
}
