package sweep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/tenants"
)

const mostQueues = 10_000 // that are remembered

// queues remembers since when the first cohort of a tenant's queue in a shard has waited, as of the last reading. A cohort that joins later
// waits since the clock of a later sweep, as sweeps of a shard follow one another.
type queues struct {
	horizon *cluster.Horizon

	mu    sync.Mutex
	since map[queueName]queuedSince
	whole cluster.Seldom
}

type queueName struct {
	shard  int16
	tenant tenants.ID
}

type queuedSince struct {
	at  time.Time
	era int // of the horizon
}

// from returns where reading a queue begins; the zero time: at its low end.
func (q *queues) from(name queueName) time.Time {
	_, era := q.horizon.Chunks()
	q.mu.Lock()
	defer q.mu.Unlock()
	if known, is := q.since[name]; is && known.era == era {
		return known.at
	}
	return time.Time{}
}

// began notes since when the first cohort of a queue has waited.
func (q *queues) began(name queueName, at time.Time) {
	_, era := q.horizon.Chunks()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.since == nil || len(q.since) >= mostQueues {
		q.since = map[queueName]queuedSince{}
	}
	q.since[name] = queuedSince{at, era}
}

// wholeDue reports whether it is time to read a queue from its low end.
func (q *queues) wholeDue() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.whole.Due(time.Now())
}

// wholeEnded notes when a reading from the low end began.
func (q *queues) wholeEnded(began time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.whole.Ended(began, time.Now())
}

// queueOf reads the first cohorts of a tenant's queue. If they seem to be all, it sometimes reads the queue from its low end, to find a
// cohort that waits there since an earlier time all the same.
func (p *pass) queueOf(ctx context.Context, tenant tenants.ID, limit int) (cohorts []*due, err error) {
	name := queueName{p.shard, tenant}
	from := p.fair.queues.from(name)
	if cohorts, err = p.readQueue(ctx, tenant, from, limit); err != nil {
		return nil, err
	}
	if len(cohorts) < limit && !from.IsZero() && p.fair.queues.wholeDue() {
		began := time.Now()
		if cohorts, err = p.readQueue(ctx, tenant, time.Time{}, limit); err != nil {
			return nil, err
		}
		p.fair.queues.wholeEnded(began)
	}
	if len(cohorts) > 0 && cohorts[0].ThrottledAt != nil {
		p.fair.queues.began(name, *cohorts[0].ThrottledAt)
	}
	return cohorts, nil
}

// readQueue reads cohorts of a tenant that have waited since a moment, or for a shorter time. The statement tests isfinite, because a comparison
// of due_at would let the planner choose the index cohort_due, which has an entry for each earlier wait of every tenant in the shard.
func (p *pass) readQueue(ctx context.Context, tenant tenants.ID, from time.Time, limit int) ([]*due, error) {
	rows, _ := p.tx.Query(ctx, `
		SELECT `+DueColumns+`
		FROM cohort c
		WHERE c.shard = $1 AND c.tenant_id = $2 AND c.throttled_at IS NOT NULL AND c.throttled_at >= $4 AND NOT c.paced AND NOT isfinite(c.due_at)
		ORDER BY c.throttled_at, c.id
		LIMIT $3`, p.shard, tenant, limit, from) // ForEachRow reports the error
	cohorts, err := collectDue(rows)
	if err != nil {
		return nil, fmt.Errorf("read queued cohorts: %w", err)
	}
	return cohorts, nil
}
