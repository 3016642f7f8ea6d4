package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
)

// Ticks that wait for a worker are packed in rows of table ready, up to mostInReady in a row. A row holds ticks of one workflow, queue and
// priority, in the order in which they came. A poll takes the first ticks of a row and adds them to its column taken. It deletes a row
// whose ticks are all taken.

// mostInReady is how many ticks a row of ready holds at most. A worker that leases one tick at a time writes the row again for each.
const mostInReady = 100

// ReadyTick is a tick that waits for a worker to lease it.
type ReadyTick struct {
	ident.TickKey
	Workflow, Queue string
	Priority        int16
	Attempt         int16
	Limited         bool
}

// readyName is what the ticks of one row of ready have in common.
type readyName struct {
	tenant          tenants.ID
	workflow, queue string
	priority        int16
}

// ReadyRows collects rows of ready, as columns. The zero value is empty.
type ReadyRows struct {
	open       map[readyName][]record.Try
	owners     []int32
	workflows  []string
	queues     []string
	priorities []int16
	counts     []int32
	packed     [][]byte
	arrived    []readyName // the names in open, in the order in which they were added
}

// Add adds a tick of a tenant.
func (r *ReadyRows) Add(tenant tenants.ID, t *ReadyTick) {
	if r.open == nil {
		r.open = map[readyName][]record.Try{}
	}
	name := readyName{tenant, t.Workflow, t.Queue, t.Priority}
	tries, begun := r.open[name]
	if !begun {
		r.arrived = append(r.arrived, name)
		tries = make([]record.Try, 0, mostInReady)
	}
	if tries = append(tries, record.Try{TickKey: t.TickKey, Attempt: t.Attempt}); len(tries) == mostInReady {
		r.cut(name, tries)
		tries = tries[:0]
	}
	r.open[name] = tries
}

func (r *ReadyRows) cut(name readyName, tries []record.Try) {
	r.owners, r.workflows, r.queues, r.priorities = append(r.owners, int32(name.tenant)), append(r.workflows, name.workflow), append(r.queues, name.queue), append(r.priorities, name.priority)
	r.counts, r.packed = append(r.counts, int32(len(tries))), append(r.packed, packReady(tries))
}

// Queue inserts the rows and empties r.
func (r *ReadyRows) Queue(b *pgx.Batch) {
	for _, name := range r.arrived {
		if tries := r.open[name]; len(tries) > 0 {
			r.cut(name, tries)
		}
	}
	r.open, r.arrived = nil, nil
	if len(r.owners) == 0 {
		return
	}
	b.Queue(`
		INSERT INTO ready (tenant_id, workflow, queue, priority, ticks, items)
		SELECT tenant_id, workflow, queue, priority, ticks, items
		FROM unnest($1::int[], $2::text[], $3::text[], $4::smallint[], $5::int[], $6::bytea[]) AS n (tenant_id, workflow, queue, priority, ticks, items)
		WHERE pg_current_xact_id() IS NOT NULL -- comes first: a transaction has its own number before it takes those of rows`,
		r.owners, r.workflows, r.queues, r.priorities, r.counts, r.packed)
}

// readyRow is a row of ready that this transaction has locked.
type readyRow struct {
	Workflow string
	Queue    string
	Priority int16
	ID       int64
	Ticks    int32
	Taken    int32
	Items    []byte
}

// takeReady takes ready ticks out of the queues: by priority, and then in the order in which they came. It skips rows that other polls
// have locked, and waits for one only if there are no others.
func takeReady(ctx context.Context, tx pgx.Tx, tenant tenants.ID, r leaseRequest) ([]record.Try, error) {
	places := slices.DeleteFunc(slices.Clone(r.places), func(p ReadyPlace) bool { return !slices.Contains(r.workflows, p.Workflow) })
	slices.SortFunc(places, func(a, b ReadyPlace) int { return cmp.Compare(a.Priority, b.Priority) })
	var all []record.Try
	for left := places; len(left) > 0 && len(all) < r.max; {
		n := slices.IndexFunc(left, func(p ReadyPlace) bool { return p.Priority != left[0].Priority })
		if n < 0 {
			n = len(left)
		}
		tries, err := takeReadyOf(ctx, tx, tenant, left[:n], r.max-len(all))
		if err != nil {
			return nil, err
		}
		all, left = append(all, tries...), left[n:]
	}
	if len(all) > 0 || len(places) == 0 {
		return all, nil
	}
	rows, err := awaitReady(ctx, tx, tenant, places)
	if err != nil {
		return nil, err
	}
	return takeFrom(ctx, tx, tenant, rows, r.max)
}

// takeReadyOf takes up to n ticks of queues of one priority.
func takeReadyOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, places []ReadyPlace, n int) ([]record.Try, error) {
	var all []record.Try
	for most := n/mostInReady + 1; ; most = n - len(all) {
		rows, err := lockReady(ctx, tx, tenant, places, most)
		if err != nil {
			return nil, err
		}
		tries, err := takeFrom(ctx, tx, tenant, rows, n-len(all))
		if err != nil {
			return nil, err
		}
		if all = append(all, tries...); len(all) == n || len(rows) < most {
			return all, nil
		}
	}
}

// readyIn begins a query of the first rows of some queues. A locking clause ends its subquery.
const readyIn = `
		SELECT q.workflow, q.queue, q.priority, r.id, r.ticks, r.taken, r.items
		FROM unnest($2::text[], $3::text[], $4::smallint[], $5::bigint[]) AS q (workflow, queue, priority, from_id)
		CROSS JOIN LATERAL (
			SELECT id, ticks, taken, items
			FROM ready
			WHERE tenant_id = $1 AND ready.workflow = q.workflow AND ready.queue = q.queue AND ready.priority = q.priority AND id >= q.from_id
			ORDER BY id
			LIMIT $6
			`

// readyArgs are the arguments of readyIn.
func readyArgs(tenant tenants.ID, places []ReadyPlace, most int) []any {
	var workflows, queues []string
	var priorities []int16
	var from []int64
	for _, p := range places {
		workflows, queues, priorities, from = append(workflows, p.Workflow), append(queues, p.Queue), append(priorities, p.Priority), append(from, p.From)
	}
	return []any{tenant, workflows, queues, priorities, from, most}
}

func lockReady(ctx context.Context, tx pgx.Tx, tenant tenants.ID, places []ReadyPlace, most int) ([]readyRow, error) {
	rows, _ := tx.Query(ctx, readyIn+`FOR UPDATE SKIP LOCKED
		) r
		ORDER BY q.priority, r.id
		LIMIT $6`, readyArgs(tenant, places, most)...) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[readyRow])
	if err != nil {
		return nil, fmt.Errorf("take ready ticks: %w", err)
	}
	return found, nil
}

// readyWait limits the wait for a row that another poll has locked. Polls hold such locks for a few milliseconds.
const readyWait = "200ms"

// awaitReady waits for the first row of the queues when other polls have locked them all, and returns it if ticks are left in it.
func awaitReady(ctx context.Context, tx pgx.Tx, tenant tenants.ID, places []ReadyPlace) (found []readyRow, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint: the wait may fail
		var b pgx.Batch
		b.Queue(`SET LOCAL lock_timeout = '` + readyWait + `'`)
		b.Queue(readyIn+`FOR UPDATE
			) r
			ORDER BY q.priority, r.id
			LIMIT $6`, readyArgs(tenant, places, 1)...).Query(func(rows pgx.Rows) error {
			found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[readyRow])
			return err
		})
		b.Queue(`SET LOCAL lock_timeout TO DEFAULT`)
		return tx.SendBatch(ctx, &b).Close()
	})
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "55P03" { // lock_not_available
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for ready ticks: %w", err)
	}
	return found, nil
}

// takeFrom takes up to n ticks out of locked rows.
func takeFrom(ctx context.Context, tx pgx.Tx, tenant tenants.ID, rows []readyRow, n int) ([]record.Try, error) {
	var all []record.Try
	var b pgx.Batch
	var workflows, queues []string
	var priorities []int16
	var ids []int64
	for i := range rows {
		row := &rows[i]
		left, err := row.left()
		if err != nil {
			return nil, err
		}
		if len(all)+len(left) > n {
			left = left[:n-len(all)]
			if len(left) > 0 {
				b.Queue(`
					UPDATE ready
					SET taken = taken + $6
					WHERE tenant_id = $1 AND workflow = $2 AND queue = $3 AND priority = $4 AND id = $5`,
					tenant, row.Workflow, row.Queue, row.Priority, row.ID, len(left))
			}
			all = append(all, left...)
			break
		}
		all = append(all, left...)
		workflows, queues, priorities, ids = append(workflows, row.Workflow), append(queues, row.Queue), append(priorities, row.Priority), append(ids, row.ID)
	}
	if len(ids) > 0 && !sabotage.ReadyKept.On() {
		b.Queue(`
			DELETE FROM ready
			USING unnest($2::text[], $3::text[], $4::smallint[], $5::bigint[]) AS n (workflow, queue, priority, id)
			WHERE ready.tenant_id = $1 AND ready.workflow = n.workflow AND ready.queue = n.queue AND ready.priority = n.priority AND ready.id = n.id`,
			tenant, workflows, queues, priorities, ids)
	}
	if b.Len() == 0 {
		return all, nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("take ready ticks: %w", err)
	}
	return all, nil
}

// left returns the ticks of the row that nobody has taken.
func (r *readyRow) left() ([]record.Try, error) {
	all, err := unpackReady(r.Items, int(r.Ticks))
	if err != nil {
		return nil, fmt.Errorf("ready %d: %w", r.ID, err)
	}
	return all[r.Taken:], nil
}

// mostReadyRead limits how many rows of a queue are searched for a tick that is cancelled. A tick further behind is told to stop, and ends
// when a poll takes it.
const mostReadyRead = 400

// TakeOneReady takes one tick out of a queue. It returns false if the tick is not found, or a poll has locked its row.
func TakeOneReady(ctx context.Context, tx pgx.Tx, tenant tenants.ID, at ReadyPlace, k ident.TickKey) (bool, error) {
	rows, _ := tx.Query(ctx, `
		SELECT workflow, queue, priority, id, ticks, taken, items
		FROM ready
		WHERE tenant_id = $1 AND workflow = $2 AND queue = $3 AND priority = $4 AND id >= $6
		ORDER BY id
		LIMIT $5`, tenant, at.Workflow, at.Queue, at.Priority, mostReadyRead, at.From) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[readyRow])
	if err != nil {
		return false, fmt.Errorf("look for a ready tick: %w", err)
	}
	for i := range found {
		_, there, err := found[i].without(k)
		if err != nil {
			return false, err
		}
		if there {
			return takeOneOf(ctx, tx, tenant, &found[i], k)
		}
	}
	return false, nil
}

// takeOneOf locks a row and takes a tick out of it. It returns false if another transaction has locked the row or taken the tick.
func takeOneOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, row *readyRow, k ident.TickKey) (bool, error) {
	const theRow = `tenant_id = $1 AND workflow = $2 AND queue = $3 AND priority = $4 AND id = $5`
	rows, _ := tx.Query(ctx, `SELECT workflow, queue, priority, id, ticks, taken, items FROM ready WHERE `+theRow+` FOR UPDATE SKIP LOCKED`,
		tenant, row.Workflow, row.Queue, row.Priority, row.ID) // CollectRows reports the error
	locked, err := pgx.CollectRows(rows, pgx.RowToStructByPos[readyRow])
	if err != nil {
		return false, fmt.Errorf("take a ready tick: %w", err)
	}
	if len(locked) == 0 {
		return false, nil
	}
	rest, there, err := locked[0].without(k)
	if err != nil || !there {
		return false, err
	}
	if len(rest) == 0 {
		_, err = tx.Exec(ctx, `DELETE FROM ready WHERE `+theRow, tenant, row.Workflow, row.Queue, row.Priority, row.ID)
	} else {
		_, err = tx.Exec(ctx, `UPDATE ready SET ticks = $6, taken = 0, items = $7 WHERE `+theRow,
			tenant, row.Workflow, row.Queue, row.Priority, row.ID, len(rest), packReady(rest))
	}
	if err != nil {
		return false, fmt.Errorf("take a ready tick: %w", err)
	}
	return true, nil
}

// without returns the ticks that are left in the row without the tick k. there reports whether k was among them.
func (r *readyRow) without(k ident.TickKey) (rest []record.Try, there bool, err error) {
	left, err := r.left()
	if err != nil {
		return nil, false, err
	}
	for i := range left {
		if left[i].TickKey == k {
			return append(left[:i:i], left[i+1:]...), true, nil
		}
	}
	return left, false, nil
}
