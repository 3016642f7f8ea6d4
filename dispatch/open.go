package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// chunk is a row of chunk.
type chunk struct {
	ID        int64
	Shard     int16
	TenantID  tenants.ID
	Kind      int16
	Lane      string
	NominalAt time.Time
	FirstID   int64
	LastID    int64
	Items     []byte
	Workflows []string
	OpenedAt  *time.Time
	Epoch     int32
}

const chunkColumns = `id, shard, tenant_id, kind, lane, nominal_at, first_id, last_id, items, workflows, opened_at, epoch`

// opened is what the opening of a chunk gives rise to once it is committed.
type opened struct {
	chunk   *chunk
	now     time.Time
	ticks   []tick
	ready   []readyTick
	send    []*delivery
	waiting []*delivery // for one of their workflow to end
	hold    []hold
	buffer  []ident.TickKey // ticks that wait for others
	cancels []int64         // schedules whose running tick is to stop for a newer one
	passed  []ident.TickKey // skipped ticks of schedules with fixed_delay
	fired   []Fired
	ending  []ending
}

// open opens a chunk: it decides each tick in it, commits the rows, and has those that were handed out sent. A chunk
// that is open already, or gone, is left as it is.
func (d *Dispatch) open(ctx context.Context, id int64) error {
	for range mostEarlier {
		earlier, err := d.openOne(ctx, id)
		if err != nil || earlier == 0 {
			return err
		}
		if err := d.open(ctx, earlier); err != nil {
			return fmt.Errorf("open the earlier chunk %d: %w", earlier, err)
		}
	}
	return fmt.Errorf("chunk %d has more than %d unopened before it", id, mostEarlier)
}

const mostEarlier = 2000

// openOne opens a chunk, unless an earlier one that shares a schedule with it is unopened still: it then returns that.
func (d *Dispatch) openOne(ctx context.Context, id int64) (earlier int64, err error) {
	self, alive := d.process.self()
	if !alive {
		return 0, errors.New("this process was silent and opens nothing")
	}
	var o *opened
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
			o, earlier = nil, 0
			c, err := lockChunk(ctx, tx, id)
			if err != nil || c == nil || c.OpenedAt != nil {
				return err
			}
			o = &opened{chunk: c}
			if c.Kind == laterTries {
				err = d.openTries(ctx, tx, o)
			} else {
				earlier, err = d.openFirst(ctx, tx, o)
			}
			if err != nil || earlier != 0 {
				o = nil
				return err
			}
			return d.commitOpen(ctx, tx, o, self)
		})
	})
	if err != nil || o == nil {
		return earlier, err
	}
	d.after(o)
	return 0, nil
}

func lockChunk(ctx context.Context, tx pgx.Tx, id int64) (*chunk, error) {
	rows, _ := tx.Query(ctx, `SELECT `+chunkColumns+` FROM chunk WHERE id = $1 FOR UPDATE`, id) // CollectExactlyOneRow reports the error
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[chunk])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock chunk: %w", err)
	}
	c.NominalAt = c.NominalAt.UTC()
	return c, nil
}

// earlierOf finds the first unopened chunk before c that holds a schedule of c's.
func earlierOf(ctx context.Context, tx pgx.Tx, c *chunk, groups []group) (int64, error) {
	rows, _ := tx.Query(ctx, `
		SELECT id, items
		FROM chunk
		WHERE shard = $1 AND tenant_id = $2 AND opened_at IS NULL AND nominal_at < $3 AND kind = 0
			AND first_id <= $5 AND last_id >= $4
		ORDER BY nominal_at, id`, c.Shard, c.TenantID, c.NominalAt, c.FirstID, c.LastID) // CollectRows reports the error
	type candidate struct {
		ID    int64
		Items []byte
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
	if err != nil {
		return 0, fmt.Errorf("look for earlier chunks: %w", err)
	}
	for _, f := range found {
		other, err := unpackGroups(f.Items)
		if err != nil {
			return 0, fmt.Errorf("chunk %d: %w", f.ID, err)
		}
		if shares(groups, other) {
			return f.ID, nil
		}
	}
	return 0, nil
}

// commitOpen writes what opening decided, and marks the chunk: open, and done where nothing of it is to be pushed.
func (d *Dispatch) commitOpen(ctx context.Context, tx pgx.Tx, o *opened, self int64) error {
	if err := d.admit(ctx, tx, o); err != nil {
		return err
	}
	if err := copyTicks(ctx, tx, o.chunk.TenantID, o.ticks); err != nil {
		return err
	}
	if err := d.buffer(ctx, tx, o.chunk.TenantID, o.now, o.buffer, o.cancels); err != nil {
		return err
	}
	if o.chunk.Kind == laterTries {
		if err := claim(ctx, tx, o); err != nil {
			return err
		}
	}
	if err := copyReady(ctx, tx, o.chunk.TenantID, o.ready); err != nil {
		return err
	}
	if err := insertHolds(ctx, tx, o.chunk.TenantID, o.hold); err != nil {
		return err
	}
	if len(o.ending) > 0 {
		if _, err := d.end(ctx, tx, o.chunk.TenantID, o.now, o.ending); err != nil {
			return err
		}
	}
	var b pgx.Batch
	queueRoll(&b, o.chunk.TenantID, o.ticks)
	queueUse(&b, o.chunk.TenantID, o.now, o.ticks)
	b.Queue(`
		UPDATE chunk
		SET opened_at = $2::timestamptz, owner = $3, epoch = epoch + 1, done_at = CASE WHEN $4 THEN $2::timestamptz END
		WHERE id = $1
		RETURNING epoch`, o.chunk.ID, o.now, self, len(o.send) == 0).QueryRow(func(row pgx.Row) error { return row.Scan(&o.chunk.Epoch) })
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("mark chunk open: %w", err)
	}
	return nil
}

// after sends what was handed out, now that it is committed.
func (d *Dispatch) after(o *opened) {
	for _, one := range o.send {
		one.epoch = o.chunk.Epoch
	}
	d.sender.add(o.chunk.ID, o.send)
	waiting := map[string]int{}
	for _, r := range o.ready {
		waiting[r.workflow]++
	}
	for workflow, n := range waiting {
		d.hub.ready(o.chunk.TenantID, workflow, n)
	}
	type outcome struct {
		state  State
		reason Reason
	}
	outcomes := map[outcome]int{}
	for i := range o.ticks {
		t := &o.ticks[i]
		outcomes[outcome{t.State, t.Reason}]++
		if t.State == Running {
			d.Metrics.lateness.Observe(t.FiredAt.Sub(t.NominalAt).Seconds())
		}
	}
	for one, n := range outcomes {
		d.Metrics.ticks.WithLabelValues(one.state.String(), one.reason.String()).Add(float64(n))
	}
	if d.OnFired != nil && len(o.fired) > 0 {
		d.OnFired(o.fired)
	}
}

func copyTicks(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ticks []tick) error {
	if len(ticks) == 0 {
		return nil
	}
	columns := []string{
		"tenant_id", "schedule_id", "nominal_at", "seq", "version", "missed_count", "occurrence", "cohort_id", "chunk_id",
		"last_at", "until_at", "fired_at", "ended_at", "shard", "attempt", "state", "reason", "cause", "dst", "payload",
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"tick"}, columns, pgx.CopyFromSlice(len(ticks), func(i int) ([]any, error) {
		t := &ticks[i]
		return []any{
			int32(tenant), t.ScheduleID, t.NominalAt, t.Seq, t.Version, t.MissedCount, t.Occurrence, t.CohortID, t.ChunkID,
			t.LastAt, t.UntilAt, t.FiredAt, t.EndedAt, t.Shard, t.Attempt, int16(t.State), int16(t.Reason), int16(t.Cause), int16(t.DST), t.Payload,
		}, nil
	}))
	if err != nil {
		return fmt.Errorf("record ticks: %w", err)
	}
	return nil
}

// readyTick is a tick that waits for a worker to lease it.
type readyTick struct {
	ident.TickKey
	workflow, queue string
	priority        int16
	attempt         int16
	limited         bool
}

func copyReady(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ready []readyTick) error {
	if len(ready) == 0 {
		return nil
	}
	columns := []string{"tenant_id", "workflow", "queue", "priority", "schedule_id", "nominal_at", "seq", "attempt"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"ready"}, columns, pgx.CopyFromSlice(len(ready), func(i int) ([]any, error) {
		r := &ready[i]
		return []any{int32(tenant), r.workflow, r.queue, r.priority, r.Schedule, r.At, r.Seq, r.attempt}, nil
	}))
	if err != nil {
		return fmt.Errorf("queue ticks for workers: %w", err)
	}
	return nil
}

// openFirst decides the ticks of schedules whose nominal time has come.
func (d *Dispatch) openFirst(ctx context.Context, tx pgx.Tx, o *opened) (earlier int64, err error) {
	c := o.chunk
	groups, err := unpackGroups(c.Items)
	if err != nil {
		return 0, fmt.Errorf("chunk %d: %w", c.ID, err)
	}
	if earlier, err = earlierOf(ctx, tx, c, groups); err != nil || earlier != 0 {
		return earlier, err
	}
	routes, halted, now, err := d.routes(ctx, tx, c.TenantID, c.Workflows)
	if err != nil {
		return 0, err
	}
	o.now = now
	if err := d.excluded(ctx, tx, c.TenantID, c.Shard, c.NominalAt, groups); err != nil {
		return 0, err
	}
	items := flatten(groups)
	if err := d.decide(ctx, tx, o, items, routes, halted); err != nil {
		return 0, err
	}
	if err := d.rearm(ctx, tx, c.TenantID, o.now, o.passed); err != nil {
		return 0, err
	}
	return 0, d.cancelDeleted(ctx, tx, o, items)
}

// item is one schedule of a chunk, with the group that it stands in.
type item struct {
	*group
	id      int64
	decided bool
}

func flatten(groups []group) []item {
	var items []item
	for i := range groups {
		for _, id := range groups[i].IDs {
			items = append(items, item{group: &groups[i], id: id})
		}
	}
	// In rising order of id, so that two that open chunks lock the states in one order.
	slices.SortFunc(items, func(a, b item) int { return int(a.id - b.id) })
	return items
}
