package finish

import (
	"context"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Rows of slot and queued come and go with each tick of a limited workflow, and while an old snapshot is open the indexes keep an entry of
// each row that is gone. So each process remembers of a workflow from which numbers on its rows are read. A transaction that adds a row
// holds the lock of the workflow, and takes the row's number under that lock. So whoever holds the lock sees all rows with the numbers that
// were taken before. What a transaction sees is remembered after its COMMIT: it does not see the rows that it has deleted itself.

const (
	mostLimitsKnown = 10_000 // workflows that are remembered
	mostOldSlots    = 100    // slots of a workflow that are remembered by their numbers, so that they do not hold its floor down
)

// slotFloor is what a process knows of the slots of a workflow. It is immutable.
type slotFloor struct {
	era  int     // of the horizon
	from int64   // the slots with lower numbers are in old, or gone
	old  []int64 // in ascending order
}

// queueFloor is what a process knows of the ticks of a workflow that wait for slots. It is immutable.
type queueFloor struct {
	era  int
	from [policy.Priorities]int64 // by priority, from 1 on: the waiting ticks with lower numbers are gone
}

// limitFloors remembers the floors of limited workflows. It is safe for concurrent use.
type limitFloors struct {
	horizon *cluster.Horizon
	slots   *lru.Cache[limitedWorkflow, slotFloor]
	queues  *lru.Cache[limitedWorkflow, queueFloor]
}

func newLimitFloors(h *cluster.Horizon) *limitFloors {
	slots, err := lru.New[limitedWorkflow, slotFloor](mostLimitsKnown)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	queues, err := lru.New[limitedWorkflow, queueFloor](mostLimitsKnown)
	if err != nil {
		panic(err)
	}
	return &limitFloors{horizon: h, slots: slots, queues: queues}
}

// slotsOf returns the floor of a workflow's slots.
func (l *limitFloors) slotsOf(of limitedWorkflow, era int) slotFloor {
	if known, is := l.slots.Get(of); is && known.era == era {
		return known
	}
	return slotFloor{era: era}
}

// queueOf returns the floors of the ticks that wait for slots of a workflow.
func (l *limitFloors) queueOf(of limitedWorkflow) queueFloor {
	era := l.horizon.CurrentEra()
	if known, is := l.queues.Get(of); is && known.era == era {
		return known
	}
	return queueFloor{era: era}
}

// countRunning counts the slots of workflows whose locks the transaction holds.
func (l *limitFloors) countRunning(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflows []string) (running map[string]int, err error) {
	era := l.horizon.CurrentEra()
	var from, old []int64
	var oldOf []string
	for _, name := range workflows {
		f := l.slotsOf(limitedWorkflow{tenant, name}, era)
		from, old, oldOf = append(from, f.from), append(old, f.old...), append(oldOf, slices.Repeat([]string{name}, len(f.old))...)
	}
	rows, err := tx.Query(ctx, `
		SELECT w.name, s.n, s.first, COALESCE(pg_sequence_last_value('slot_id_seq'), 0)
		FROM unnest($2::text[], $3::bigint[]) AS w (name, from_id)
		CROSS JOIN LATERAL (
			SELECT count(*) AS n, (array_agg(id ORDER BY id))[:$6::int] AS first
			FROM (
				SELECT id FROM slot WHERE tenant_id = $1 AND workflow = w.name AND id >= w.from_id
				UNION ALL
				SELECT s.id
				FROM unnest($4::text[], $5::bigint[]) AS o (name, id)
				CROSS JOIN LATERAL (SELECT id FROM slot WHERE tenant_id = $1 AND workflow = w.name AND id = o.id OFFSET 0) s
				WHERE o.name = w.name
			) s
		) s`, tenant, workflows, from, oldOf, old, mostOldSlots+1)
	if err != nil {
		return nil, err
	}
	running = map[string]int{}
	found := map[limitedWorkflow]slotFloor{}
	var name string
	var n int
	var first []int64
	var last int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &n, &first, &last}, func() error {
		running[name] = n
		f := slotFloor{era: era, from: last + 1, old: slices.Clone(first)}
		if n > mostOldSlots {
			f.from, f.old = first[mostOldSlots], f.old[:mostOldSlots]
		}
		found[limitedWorkflow{tenant, name}] = f
		return nil
	}); err != nil {
		return nil, err
	}
	postgres.AfterCommit(tx, func() {
		for of, f := range found {
			l.slots.Add(of, f)
		}
	})
	return running, nil
}

// queueWaiting queues the query that looks for ticks that wait for slots of workflows whose locks the transaction holds, and adds the
// workflows that have any.
func (l *limitFloors) queueWaiting(tx pgx.Tx, b *pgx.Batch, tenant tenants.ID, workflows []string, waiting map[string]bool) {
	found := map[string]*queueFloor{}
	var names []string
	var priorities []int16
	var from []int64
	for _, name := range workflows {
		f := l.queueOf(limitedWorkflow{tenant, name})
		found[name] = &f
		names = append(names, slices.Repeat([]string{name}, policy.Priorities)...)
		priorities, from = append(priorities, allPriorities...), append(from, f.from[:]...)
	}
	b.Queue(`
		SELECT p.name, p.priority,
			(SELECT id FROM queued WHERE tenant_id = $1 AND workflow = p.name AND priority = p.priority AND id >= p.from_id ORDER BY id LIMIT 1),
			COALESCE(pg_sequence_last_value('queued_id_seq'), 0)
		FROM unnest($2::text[], $3::smallint[], $4::bigint[]) AS p (name, priority, from_id)`, tenant, names, priorities, from).Query(func(rows pgx.Rows) error {
		var name string
		var priority int16
		var first *int64
		var last int64
		_, err := pgx.ForEachRow(rows, []any{&name, &priority, &first, &last}, func() error {
			from := &found[name].from[priority-1]
			if *from = last + 1; first != nil {
				*from, waiting[name] = *first, true
			}
			return nil
		})
		if err == nil {
			postgres.AfterCommit(tx, func() {
				for name, f := range found {
					l.queues.Add(limitedWorkflow{tenant, name}, *f)
				}
			})
		}
		return err
	})
}

// allPriorities are the priorities of ticks, the highest first.
var allPriorities = func() (all []int16) {
	for p := range int16(policy.Priorities) {
		all = append(all, p+1)
	}
	return all
}()
