package lease

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/tenants"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
)

// Rows of ready are used up at the low ends of their queues, and while an old snapshot is open the indexes keep an entry of each
// that was there. So each process remembers which queues of a workflow had ready ticks, from which numbers on, and up to which number
// it has seen all rows of the workflow. A look reads those queues from there on, and the rows that came since. No transaction that
// is still open can commit a row with a number that was seen: see horizon.

const (
	mostReadyKnown  = 10_000 // workflows that are remembered
	mostReadyQueues = 100    // queues of a workflow that are remembered, else it is not
	mostArrived     = 200    // rows of a workflow that came since the last look, and are read at once
)

// readyQueue names a queue of a workflow with ready ticks of one priority.
type ReadyQueue struct {
	Queue    string
	Priority int16
}

// readyPlace says from which number on the rows of a queue are read.
type ReadyPlace struct {
	Workflow string
	ReadyQueue
	From int64
}

// readyKnown is what a process knows of a workflow. It does not change.
type readyKnown struct {
	era    int                  // of the horizon
	seen   int64                // each row with this number or a lower one is in one of the queues, or used up
	queues map[ReadyQueue]int64 // from which number on
}

// workflowName names a workflow of a tenant.
type workflowName struct {
	tenant   tenants.ID
	workflow string
}

// readyQueues remembers workflows.
type ReadyQueues struct {
	mu   sync.Mutex
	kept *lru.Cache[workflowName, *readyKnown]
}

func newReadyQueues() *ReadyQueues {
	kept, err := lru.New[workflowName, *readyKnown](mostReadyKnown)
	if err != nil {
		panic(err) // its size is no more than zero
	}
	return &ReadyQueues{kept: kept}
}

// of returns what is known of a workflow, or nil.
func (q *ReadyQueues) Of(tenant tenants.ID, workflow string, h *cluster.Horizon) *readyKnown {
	_, era := h.SettledReady()
	if known, is := q.kept.Get(workflowName{tenant, workflow}); is && known.era == era {
		return known
	}
	return nil
}

// lowest returns the lowest number that a row of the workflow may have.
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

// from returns the lowest number that a row of a queue may have.
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
	unknown []string // of which all queues are looked for
	found   map[string]*readyFound
	limited bool // one of the workflows has a max_running
}

// readyFound is what a look finds of one workflow.
type readyFound struct {
	queues  map[ReadyQueue]int64 // their first rows
	arrived int                  // rows that came since the last look
	last    int64                // the last of these that was read
}

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

// end notes what a look has found. Of two looks at one time the first to end counts: rows that only the other has found have
// numbers above those that the first has seen.
func (q *ReadyQueues) end(l *readyLook) {
	if l.settled == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, found := range l.found {
		at := workflowName{l.tenant, name}
		if now, is := q.kept.Peek(at); is && now != l.known[name] && now.era >= l.era {
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
			q.kept.Remove(at)
			continue
		}
		floors := make(map[ReadyQueue]int64, len(found.queues))
		for queue, first := range found.queues {
			floors[queue] = min(first, l.settled+1)
		}
		known.queues = floors
		q.kept.Add(at, known)
	}
}

// limitedOf adds an empty row to the rows of a look where one of workflows $2 of tenant $1 has a max_running.
const limitedOf = `
		UNION ALL
		SELECT '', '', 0::smallint, 0::bigint, 0::bigint, 0::bigint
		WHERE EXISTS (SELECT FROM workflow WHERE tenant_id = $1 AND name = ANY ($2::text[]) AND max_running IS NOT NULL)`

// allReady finds the first row of each queue of workflows $2 of tenant $1.
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

// readySince finds the first row of each queue of $3 to $6, and of those that rows of workflows $7 came into after $8: up to $9 rows
// of each workflow are read, and it tells how many and the last.
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

// anyReady looks without a transaction what is ready: most polls find nothing. It tells too whether any of the workflows has a
// max_running.
func (ls *Leases) anyReady(ctx context.Context, tenant tenants.ID, r leaseRequest) (places []ReadyPlace, limited bool, err error) {
	l := ls.Ready.begin(tenant, r.workflows, ls.horizon)
	if len(l.unknown) > 0 {
		if err := l.read(ls.api.Query(ctx, allReady, tenant, l.unknown)); err != nil {
			return nil, false, err
		}
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
		if err := l.read(ls.api.Query(ctx, readySince, tenant, names, workflows, queues, priorities, from, names, seen, mostArrived)); err != nil {
			return nil, false, err
		}
	}
	ls.Ready.end(l)
	return l.places(r.queues), l.limited, nil
}

// read takes the rows of a look.
func (l *readyLook) read(rows pgx.Rows, _ error) error { // ForEachRow reports the error
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
	if err != nil {
		return fmt.Errorf("look for ready ticks: %w", err)
	}
	return nil
}

// places returns where ready ticks are, in all queues or in some.
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
