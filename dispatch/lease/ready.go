package lease

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/varint"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Ticks that wait for a worker lie in ready, in rows of up to mostInReady: by workflow, queue and priority, and then as they
// came. Who leases some of a row's counts them as taken, the first first; a row that is used up goes.

// mostInReady is small enough for a row to be written again where a worker leases one tick at a time.
const mostInReady = 100

// readyTick is a tick that waits for a worker to lease it.
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

// readyRows are rows of ready, as columns.
type ReadyRows struct {
	open    map[readyName][]record.Try
	owners  []int32
	flows   []string
	queues  []string
	orders  []int16
	counts  []int32
	packed  [][]byte
	arrived []readyName // those that are open, in the order in which they were begun
}

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
	r.owners, r.flows, r.queues, r.orders = append(r.owners, int32(name.tenant)), append(r.flows, name.workflow), append(r.queues, name.queue), append(r.orders, name.priority)
	r.counts, r.packed = append(r.counts, int32(len(tries))), append(r.packed, packReady(tries))
}

// queue writes the rows.
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
		r.owners, r.flows, r.queues, r.orders, r.counts, r.packed)
}

// packReady packs ticks as varint deltas, in their order: of those that came together two or three bytes each.
func packReady(tries []record.Try) []byte {
	b := make([]byte, 0, 16+3*len(tries))
	var id, at int64
	var seq int32
	var attempt int16
	for i := range tries {
		t := &tries[i]
		now := t.At.Unix()
		delta := zigzag(t.Schedule-id) << 1
		if now == at && t.Seq == seq && t.Attempt == attempt {
			b = binary.AppendUvarint(b, delta|1)
		} else {
			b = binary.AppendUvarint(binary.AppendUvarint(b, delta), zigzag(now-at))
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(t.Seq)), uint64(t.Attempt))
		}
		id, at, seq, attempt = t.Schedule, now, t.Seq, t.Attempt
	}
	return b
}

func unpackReady(b []byte, n int) ([]record.Try, error) {
	r := varint.NewReader(b)
	tries := make([]record.Try, n)
	var last record.Try
	var at int64
	for i := range tries {
		delta := r.Next()
		last.Schedule += unzigzag(delta >> 1)
		if delta&1 == 0 {
			at += unzigzag(r.Next())
			last.At, last.Seq, last.Attempt = time.Unix(at, 0).UTC(), int32(r.Next()), int16(r.Next())
		}
		tries[i] = last
	}
	if !r.Whole() {
		return nil, chunk.ErrBroken
	}
	return tries, nil
}

// zigzag makes small numbers of either sign small ones without.
func zigzag(n int64) uint64 { return uint64(n<<1) ^ uint64(n>>63) }

func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

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

// takeReady takes ready ticks out of the queues: by priority, and then as they came. Rows that others are taking from are
// passed over, unless there are no more than those.
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

// readyIn are the first rows of some queues, as far as they can be locked.
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

// readyWait is how long a row is waited for that another worker takes from: it does so for a few milliseconds.
const readyWait = "200ms"

// awaitReady is for a moment in which others hold all rows that there are: of one it takes what they leave.
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

// takeFrom takes up to n ticks of rows that are locked.
func takeFrom(ctx context.Context, tx pgx.Tx, tenant tenants.ID, rows []readyRow, n int) ([]record.Try, error) {
	var all []record.Try
	var b pgx.Batch
	var flows, queues []string
	var orders []int16
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
		flows, queues, orders, ids = append(flows, row.Workflow), append(queues, row.Queue), append(orders, row.Priority), append(ids, row.ID)
	}
	if len(ids) > 0 && !sabotage.ReadyKept.On() {
		b.Queue(`
			DELETE FROM ready
			USING unnest($2::text[], $3::text[], $4::smallint[], $5::bigint[]) AS n (workflow, queue, priority, id)
			WHERE ready.tenant_id = $1 AND ready.workflow = n.workflow AND ready.queue = n.queue AND ready.priority = n.priority AND ready.id = n.id`,
			tenant, flows, queues, orders, ids)
	}
	if b.Len() == 0 {
		return all, nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("take ready ticks: %w", err)
	}
	return all, nil
}

// left are the ticks of the row that nobody has leased.
func (r *readyRow) left() ([]record.Try, error) {
	all, err := unpackReady(r.Items, int(r.Ticks))
	if err != nil {
		return nil, fmt.Errorf("ready %d: %w", r.ID, err)
	}
	return all[r.Taken:], nil
}

// mostReadyRead bounds how many rows of ready ticks are looked through for one that is cancelled. One further behind is told
// to stop, and ends when its turn comes.
const mostReadyRead = 400

// takeOneReady takes one tick out of a queue. It is false where it is not there, or somebody is about to lease it.
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

// takeOneOf takes a tick out of a row that is not locked yet.
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

// without is what is left of a row's ticks but for one, and tells whether that is among them.
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
