package lease

import (
	"context"
	"fmt"
	"slices"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Rows of ready are deleted at the low ends of their queues, and while an old snapshot is open the indexes keep an entry of each deleted
// row. So each process remembers which queues of a workflow had ready ticks, from which numbers on, and up to which number it has seen
// all rows of the workflow. A look reads those queues from there on, and the rows that came since. No open transaction can commit a row
// with a number that was seen: see cluster.Horizon.

const (
	mostReadyKnown  = 10_000 // workflows that are remembered
	mostReadyQueues = 100    // a workflow with more queues than this is not remembered
	mostArrived     = 200    // new rows of a workflow that one look reads
)

// ReadyQueue names a queue of a workflow, with ready ticks of one priority.
type ReadyQueue struct {
	Queue    string
	Priority int16
}

// ReadyPlace is a queue and the number from which its rows are read.
type ReadyPlace struct {
	Workflow string
	ReadyQueue
	From int64
}

// readyKnown is what a process knows of the ready ticks of a workflow. It is immutable.
type readyKnown struct {
	era    int                  // of the horizon
	seen   int64                // each row with this number or a lower one is in one of the queues, or deleted
	queues map[ReadyQueue]int64 // the number from which rows of a queue are read
}

// workflowName names a workflow of a tenant.
type workflowName struct {
	tenant   tenants.ID
	workflow string
}

// ReadyQueues remembers the queues of workflows. It is safe for concurrent use.
type ReadyQueues struct {
	polls  polls // not written yet
	mu     sync.Mutex
	cached *lru.Cache[workflowName, *readyKnown]
}

func newReadyQueues() *ReadyQueues {
	cached, err := lru.New[workflowName, *readyKnown](mostReadyKnown)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return &ReadyQueues{cached: cached}
}

// Of returns what is known of a workflow, or nil.
func (q *ReadyQueues) Of(tenant tenants.ID, workflow string, h *cluster.Horizon) *readyKnown {
	_, era := h.SettledReady()
	if known, is := q.cached.Get(workflowName{tenant, workflow}); is && known.era == era {
		return known
	}
	return nil
}

// lowest returns the lowest number that a row of the workflow may have; k may be nil.
func (k *readyKnown) lowest() int64 {
	if k == nil {
		return 0
	}
	low := k.seen + 1
	for _, from := range k.queues {
		low = min(low, from)
	}
	return low
}

// From returns the lowest number that a row of a queue may have; k may be nil.
func (k *readyKnown) From(q ReadyQueue) int64 {
	if k == nil {
		return 0
	}
	if from, is := k.queues[q]; is {
		return from
	}
	return k.seen + 1
}

// readyLook is one look for ready ticks of some workflows.
type readyLook struct {
	tenant  tenants.ID
	settled int64
	era     int
	known   map[string]*readyKnown
	unknown []string // workflows whose queues are all looked for
	found   map[string]*readyFound
	limited bool // one of the workflows has a max_running
}

// readyFound is what a look finds of one workflow.
type readyFound struct {
	queues  map[ReadyQueue]int64 // their first rows
	arrived int                  // rows that came since the last look
	last    int64                // the last of these that was read
}

// begin returns a look for ready ticks of workflows, which reads on from what is known of them.
func (q *ReadyQueues) begin(tenant tenants.ID, workflows []string, h *cluster.Horizon) *readyLook {
	l := &readyLook{tenant: tenant, known: map[string]*readyKnown{}, found: map[string]*readyFound{}}
	l.settled, l.era = h.SettledReady()
	for _, name := range workflows {
		if l.found[name] != nil {
			continue
		}
		l.found[name] = &readyFound{queues: map[ReadyQueue]int64{}}
		if known := q.Of(tenant, name, h); known != nil && known.era == l.era {
			l.known[name] = known
		} else {
			l.unknown = append(l.unknown, name)
		}
	}
	return l
}

// end remembers what a look has found. Of two concurrent looks, the first to end counts: rows that only the other one has found have
// higher numbers than the first has seen.
func (q *ReadyQueues) end(l *readyLook) {
	if l.settled == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, found := range l.found {
		at := workflowName{l.tenant, name}
		if now, is := q.cached.Peek(at); is && now != l.known[name] && now.era >= l.era {
			continue
		}
		known := &readyKnown{era: l.era, seen: l.settled, queues: found.queues}
		if found.arrived >= mostArrived {
			known.seen = min(known.seen, found.last)
		}
		if old := l.known[name]; old != nil {
			known.seen = max(known.seen, old.seen)
		}
		if len(found.queues) > mostReadyQueues {
			q.cached.Remove(at)
			continue
		}
		floors := make(map[ReadyQueue]int64, len(found.queues))
		for queue, first := range found.queues {
			floors[queue] = min(first, l.settled+1)
		}
		known.queues = floors
		q.cached.Add(at, known)
	}
}

// limitedOf adds a row without a workflow to the rows of a look if one of workflows $2 of tenant $1 has a max_running.
const limitedOf = `
		UNION ALL
		SELECT '', '', 0::smallint, 0::bigint, 0::bigint, 0::bigint
		WHERE EXISTS (SELECT FROM workflow WHERE tenant_id = $1 AND name = ANY ($2::text[]) AND max_running IS NOT NULL)`

// allReady returns the first row of each queue of workflows $2 of tenant $1.
const allReady = `
		WITH RECURSIVE every (workflow, queue, priority, id) AS (
			SELECT w.workflow, r.queue, r.priority, r.id
			FROM unnest($2::text[]) AS w (workflow)
			CROSS JOIN LATERAL (
				SELECT queue, priority, id
				FROM ready
				WHERE tenant_id = $1 AND ready.workflow = w.workflow
				ORDER BY queue, priority, id
				LIMIT 1
			) r
			UNION ALL
			SELECT e.workflow, r.queue, r.priority, r.id
			FROM every e
			CROSS JOIN LATERAL (
				SELECT queue, priority, id
				FROM ready
				WHERE tenant_id = $1 AND ready.workflow = e.workflow AND (ready.queue, ready.priority) > (e.queue, e.priority)
				ORDER BY queue, priority, id
				LIMIT 1
			) r
		)
		SELECT workflow, queue, priority, id, 0::bigint, 0::bigint FROM every` + limitedOf

// readySince returns the first row of each of the queues $3 to $6. For each workflow of $7 it also reads up to $9 rows with numbers above
// $8, and returns for each of their queues the first number, the last number and the count.
const readySince = `
		SELECT k.workflow, k.queue, k.priority, r.id, 0::bigint, 0::bigint
		FROM unnest($3::text[], $4::text[], $5::smallint[], $6::bigint[]) AS k (workflow, queue, priority, from_id)
		CROSS JOIN LATERAL (
			SELECT id
			FROM ready
			WHERE tenant_id = $1 AND ready.workflow = k.workflow AND ready.queue = k.queue AND ready.priority = k.priority AND id >= k.from_id
			ORDER BY id
			LIMIT 1
		) r
		UNION ALL
		SELECT s.workflow, r.queue, r.priority, min(r.id), max(r.id), count(*)
		FROM unnest($7::text[], $8::bigint[]) AS s (workflow, seen)
		CROSS JOIN LATERAL (
			SELECT queue, priority, id
			FROM ready
			WHERE tenant_id = $1 AND ready.workflow = s.workflow AND id > s.seen
			ORDER BY id
			LIMIT $9
		) r
		GROUP BY s.workflow, r.queue, r.priority` + limitedOf

// anyReady returns the queues that have ready ticks. It looks without a transaction, because most polls find nothing. limited reports
// whether any of the workflows has a max_running.
func (ls *Leases) anyReady(ctx context.Context, tenant tenants.ID, r leaseRequest) (places []ReadyPlace, limited bool, err error) {
	l := ls.Ready.begin(tenant, r.workflows, ls.horizon)
	var b pgx.Batch
	b.Queue(postgres.GenericPlans)
	if len(l.unknown) > 0 {
		b.Queue(allReady, tenant, l.unknown).Query(l.read)
	}
	if len(l.known) > 0 {
		var workflows, queues, names []string
		var priorities []int16
		var from, seen []int64
		for name, known := range l.known {
			names, seen = append(names, name), append(seen, known.seen)
			for q, at := range known.queues {
				workflows, queues, priorities, from = append(workflows, name), append(queues, q.Queue), append(priorities, q.Priority), append(from, at)
			}
		}
		b.Queue(readySince, tenant, names, workflows, queues, priorities, from, names, seen, mostArrived).Query(l.read)
	}
	if err := ls.api.SendBatch(ctx, &b).Close(); err != nil {
		return nil, false, fmt.Errorf("look for ready ticks: %w", err)
	}
	ls.Ready.end(l)
	return l.places(r.queues), l.limited, nil
}

// read adds rows to what the look has found.
func (l *readyLook) read(rows pgx.Rows) error {
	var workflow string
	var q ReadyQueue
	var first, last int64
	var n int
	_, err := pgx.ForEachRow(rows, []any{&workflow, &q.Queue, &q.Priority, &first, &last, &n}, func() error {
		if workflow == "" {
			l.limited = true
			return nil
		}
		found := l.found[workflow]
		if known, is := found.queues[q]; !is || first < known {
			found.queues[q] = first
		}
		found.arrived, found.last = found.arrived+n, max(found.last, last)
		return nil
	})
	return err
}

// places returns the queues with ready ticks; only those of queues if it is not empty.
func (l *readyLook) places(queues []string) (all []ReadyPlace) {
	for name, found := range l.found {
		for q, first := range found.queues {
			if len(queues) == 0 || slices.Contains(queues, q.Queue) {
				all = append(all, ReadyPlace{name, q, first})
			}
		}
	}
	return all
}
