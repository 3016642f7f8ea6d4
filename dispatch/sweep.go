package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

const (
	lookEvery   = 200 * time.Millisecond // the sweep looks at least so often
	lookLate    = 2 * time.Millisecond   // it wakes just after the second, by the database's clock
	sweepers    = 2                      // shards swept at once by one process
	mostCohorts = 1000                   // in one transaction
	mostTicks   = 8000
	sweepLimit  = 10 * time.Second
)

// sweep looks when the next shard is due, and has due shards swept, until ctx ends.
func (d *Dispatch) sweep(ctx context.Context) {
	due := make(chan int16, schedules.Shards)
	busy := newShardSet()
	var workers sync.WaitGroup
	defer workers.Wait()
	defer close(due)
	for range sweepers {
		workers.Go(func() {
			for shard := range due {
				if err := d.sweepWhole(ctx, shard); err != nil && ctx.Err() == nil {
					d.Log.Error("cannot sweep", "shard", shard, "error", err)
				}
				busy.remove(shard)
				d.poke()
			}
		})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-timer.C:
		}
		wait, err := d.look(ctx, busy, due)
		if err != nil && ctx.Err() == nil {
			d.Log.Error("cannot look for due shards", "error", err)
		}
		timer.Reset(wait)
	}
}

// poke has the sweep look at once.
func (d *Dispatch) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// look queues the shards that are due and not being swept, and tells how long until it is to look again.
func (d *Dispatch) look(ctx context.Context, busy *shardSet, due chan<- int16) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, alive := d.process.self(); !alive {
		return lookEvery, nil
	}
	rows, err := d.Pool.Query(ctx, `
		SELECT s.shard, LEAST(c.due_at, h.due_at), clock_timestamp()
		FROM unnest($1::smallint[]) AS s (shard)
		LEFT JOIN LATERAL (
			SELECT due_at FROM cohort WHERE cohort.shard = s.shard AND due_at IS NOT NULL ORDER BY due_at LIMIT 1
		) c ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM held WHERE held.shard = s.shard ORDER BY due_at LIMIT 1
		) h ON true
		WHERE COALESCE(c.due_at, h.due_at) IS NOT NULL`, d.process.shards())
	if err != nil {
		return lookEvery, err
	}
	defer rows.Close()
	wait := lookEvery
	for rows.Next() {
		var shard int16
		var at, now time.Time
		if err := rows.Scan(&shard, &at, &now); err != nil {
			return lookEvery, err
		}
		if left := at.Sub(now); left > 0 {
			wait = min(wait, left+lookLate)
			continue
		}
		if busy.add(shard) {
			due <- shard
		}
	}
	return wait, rows.Err()
}

// shardSet are the shards that are queued or being swept.
type shardSet struct {
	mu  sync.Mutex
	set map[int16]bool
}

func newShardSet() *shardSet { return &shardSet{set: map[int16]bool{}} }

func (s *shardSet) add(shard int16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set[shard] {
		return false
	}
	s.set[shard] = true
	return true
}

func (s *shardSet) remove(shard int16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, shard)
}

// sweepWhole sweeps a shard until nothing in it is due.
func (d *Dispatch) sweepWhole(ctx context.Context, shard int16) error {
	for ctx.Err() == nil {
		more, err := d.sweepOnce(ctx, shard)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// due is a cohort whose time has come.
type due struct {
	ID       int64
	TenantID tenants.ID
	Workflow string
	Hash     []byte
	Missed   string
	NextAt   *time.Time
	RunAt    *time.Time
	RunFrom  *time.Time
	RunLost  *int32 `db:"run_missed"`
	RunDrop  *bool
	AtSpread *int64
	AtID     *int64

	timing *calendar.Timing
	run    schedules.Run
	begun  bool // this transaction reached it
	whole  bool // and read all of its members
	empty  bool // of which there are none
}

// sweepOnce sweeps one batch of a shard in one transaction, and tells whether there may be more.
func (d *Dispatch) sweepOnce(ctx context.Context, shard int16) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	began := time.Now()
	var swept int
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		now, cohorts, tries, err := takeDue(ctx, tx, shard)
		if err != nil {
			return err
		}
		chunks := newChunks(shard, now)
		for tenant, batch := range tries {
			chunks.addTries(tenant, batch)
			more = more || len(batch) >= mostTries
		}
		ticks := 0
		if len(cohorts) > 0 {
			if ticks, err = d.sweepCohorts(ctx, tx, shard, now, cohorts, chunks); err != nil {
				return err
			}
		}
		more = more || len(cohorts) == mostCohorts || ticks >= mostTicks
		swept = ticks
		return d.insertChunks(ctx, tx, chunks)
	})
	if err == nil && swept > 0 {
		d.Metrics.swept.Add(float64(swept))
		d.Metrics.sweepSeconds.Observe(time.Since(began).Seconds())
	}
	return more, err
}

const mostTries = 2000

// takeDue locks the shard, reads the clock under the lock, and reads what is due: cohorts, and held ticks, which it
// takes out.
func takeDue(ctx context.Context, tx pgx.Tx, shard int16) (now time.Time, cohorts []*due, tries map[tenants.ID][]try, err error) {
	var b pgx.Batch
	schedules.LockShard(&b, shard)
	b.Queue(`SELECT clock_timestamp()`)
	b.Queue(`
		SELECT id, tenant_id, workflow, hash, missed, next_at, run_at, run_from, run_missed, run_drop, at_spread, at_id
		FROM cohort
		WHERE shard = $1 AND due_at <= (SELECT clock_timestamp())
		ORDER BY due_at
		LIMIT $2`, shard, mostCohorts)
	b.Queue(`
		DELETE FROM held
		WHERE (tenant_id, schedule_id, nominal_at, seq) IN (
			SELECT tenant_id, schedule_id, nominal_at, seq
			FROM held
			WHERE shard = $1 AND due_at <= (SELECT clock_timestamp())
			ORDER BY due_at
			LIMIT $2)
		RETURNING tenant_id, schedule_id, nominal_at, seq, attempt, why = 'answer'`, shard, mostTries)
	results := tx.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	if _, err = results.Exec(); err != nil {
		return now, nil, nil, fmt.Errorf("lock shard %d: %w", shard, err)
	}
	if err = results.QueryRow().Scan(&now); err != nil {
		return now, nil, nil, fmt.Errorf("read clock: %w", err)
	}
	rows, _ := results.Query() // CollectRows reports the error
	if cohorts, err = pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[due]); err != nil {
		return now, nil, nil, fmt.Errorf("read due cohorts: %w", err)
	}
	rows, err = results.Query()
	if err != nil {
		return now, nil, nil, fmt.Errorf("take held ticks: %w", err)
	}
	tries = map[tenants.ID][]try{}
	var tenant tenants.ID
	var t try
	_, err = pgx.ForEachRow(rows, []any{&tenant, &t.Schedule, &t.At, &t.Seq, &t.Attempt, &t.Answer}, func() error {
		t.At = t.At.UTC()
		tries[tenant] = append(tries[tenant], t)
		return nil
	})
	return now.UTC(), cohorts, tries, err
}

// sweepCohorts puts the due members of cohorts into chunks and advances the cohorts.
func (d *Dispatch) sweepCohorts(ctx context.Context, tx pgx.Tx, shard int16, now time.Time, cohorts []*due, chunks *chunks) (ticks int, err error) {
	if cohorts, err = d.begin(ctx, tx, shard, now, cohorts); err != nil || len(cohorts) == 0 {
		return 0, err
	}
	members, ticks, err := readMembers(ctx, tx, cohorts)
	if err != nil {
		return 0, err
	}
	for i, c := range cohorts {
		chunks.addMembers(c, members[i])
	}
	return ticks, advance(ctx, tx, shard, now, cohorts)
}

// begin finds the timing of each cohort and the run that it is in or begins. A cohort that cannot be computed is put
// aside, alone.
func (d *Dispatch) begin(ctx context.Context, tx pgx.Tx, shard int16, now time.Time, cohorts []*due) ([]*due, error) {
	names := make([]schedules.CohortTiming, len(cohorts))
	for i, c := range cohorts {
		names[i] = schedules.CohortTiming{Tenant: c.TenantID, Shard: shard, ID: c.ID, Hash: c.Hash}
	}
	timings, bad, err := d.Timings.Of(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	var broken []int64
	for i, c := range cohorts {
		if c.timing = timings[i]; c.timing == nil {
			d.Log.Error("a cohort cannot be computed and is put aside", "cohort", c.ID, "tenant", c.TenantID, "error", bad[c.ID])
			broken = append(broken, c.ID)
			continue
		}
		if c.RunAt != nil {
			c.run = schedules.Resume(c.timing, c.RunAt.UTC(), c.RunFrom.UTC(), int(*c.RunLost), *c.RunDrop, now)
			continue
		}
		c.run = schedules.BeginRun(c.timing, c.NextAt.UTC(), now, c.Missed)
	}
	if len(broken) == 0 {
		return cohorts, nil
	}
	if err := quarantine(ctx, tx, shard, broken); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(cohorts, func(c *due) bool { return c.timing == nil }), nil
}

// quarantine puts cohorts aside that cannot be computed, and says so in their schedules.
func quarantine(ctx context.Context, tx pgx.Tx, shard int16, cohorts []int64) error {
	var b pgx.Batch
	b.Queue(`
		UPDATE cohort
		SET due_at = NULL, next_at = NULL, run_at = NULL, run_from = NULL, run_missed = NULL, run_drop = NULL, at_spread = NULL, at_id = NULL
		WHERE shard = $1 AND id = ANY($2)`, shard, cohorts)
	b.Queue(`
		UPDATE schedule s
		SET status = 'quarantined', cohort_id = NULL, paused_at = NULL, paused_until = NULL,
			status_note = 'its spec cannot be computed'
		FROM member m
		WHERE m.cohort_id = ANY($1) AND s.tenant_id = m.tenant_id AND s.id = m.schedule_id`, cohorts)
	b.Queue(`DELETE FROM member WHERE cohort_id = ANY($1)`, cohorts)
	return tx.SendBatch(ctx, &b).Close()
}

// member is a member of a cohort as the sweep reads it.
type member struct {
	id, spread int64
	missed     int
	own        *schedules.Run // where its last time came before the run's
}

// readMembers reads the members of the cohorts past their cursors, cohort after cohort, until mostTicks are read. Those
// to whom the run's nominal time does not count are left out.
func readMembers(ctx context.Context, tx pgx.Tx, cohorts []*due) (members [][]member, read int, err error) {
	ids, spreads, after := make([]int64, len(cohorts)), make([]int64, len(cohorts)), make([]int64, len(cohorts))
	owners := make([]int32, len(cohorts))
	for i, c := range cohorts {
		ids[i], spreads[i], after[i], owners[i] = c.ID, -1<<63, 0, int32(c.TenantID)
		if c.RunAt != nil {
			spreads[i], after[i] = *c.AtSpread, *c.AtID
		}
	}
	// A nested loop over the cohorts as given: no other plan is open to a LATERAL with a LIMIT.
	rows, err := tx.Query(ctx, `
		SELECT c.ord::int, m.spread, m.schedule_id, m.from_at, m.until_at
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[]) WITH ORDINALITY AS c (id, spread, after, tenant_id, ord)
		CROSS JOIN LATERAL (
			SELECT spread, schedule_id, from_at, until_at
			FROM member
			WHERE cohort_id = c.id AND tenant_id = c.tenant_id AND (spread, schedule_id) > (c.spread, c.after)
			ORDER BY spread, schedule_id
			LIMIT $5
		) m
		LIMIT $5`, ids, spreads, after, owners, mostTicks+1)
	if err != nil {
		return nil, 0, fmt.Errorf("read members: %w", err)
	}
	members = make([][]member, len(cohorts))
	reached := 0
	var ord int
	var m member
	var from time.Time
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&ord, &m.spread, &m.id, &from, &until}, func() error {
		i := ord - 1
		if i < reached {
			return errors.New("members came out of order")
		}
		reached = i
		if read++; read > mostTicks {
			return nil
		}
		c := cohorts[i]
		c.AtSpread, c.AtID = new(m.spread), new(m.id)
		own, counts := c.run.For(c.timing, from, until)
		if !counts {
			return nil
		}
		m.missed, m.own = own.Missed, nil
		if !own.At.Equal(c.run.At) {
			m.own = &own
		}
		members[i] = append(members[i], m)
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read members: %w", err)
	}
	for i, c := range cohorts {
		c.begun = read <= mostTicks || i <= reached
		c.whole = read <= mostTicks || i < reached
		c.empty = c.whole && c.RunAt == nil && c.AtID == nil
	}
	return members, min(read, mostTicks), nil
}

// advance moves each cohort that was reached: to its next nominal time, to sleep where it has no members or no time
// left, or its cursor within the run.
func advance(ctx context.Context, tx pgx.Tx, shard int16, now time.Time, cohorts []*due) error {
	var ids, spreads, afters []*int64
	var next, dueAt, runAt, runFrom, empty []*time.Time
	var missed []*int32
	var drop []*bool
	for _, c := range cohorts {
		if !c.begun {
			continue
		}
		ids = append(ids, &c.ID)
		var n, at, run, from, none *time.Time
		var spread, after *int64
		var lost *int32
		var dropped *bool
		switch {
		case c.empty:
			none = &now
		case c.whole && !c.run.Next.IsZero():
			n, at = &c.run.Next, &c.run.Next
		case c.whole:
		case c.AtID == nil: // reached, but none of its members fitted in
			n, at = c.NextAt, &now
		default:
			run, from, spread, after, lost = &c.run.At, &c.run.From, c.AtSpread, c.AtID, new(int32(c.run.Missed))
			dropped = &c.run.Drop
			at = &now
			if !c.run.Next.IsZero() {
				n = &c.run.Next
			}
		}
		next, dueAt, runAt, runFrom, empty = append(next, n), append(dueAt, at), append(runAt, run), append(runFrom, from), append(empty, none)
		spreads, afters, missed, drop = append(spreads, spread), append(afters, after), append(missed, lost), append(drop, dropped)
	}
	_, err := tx.Exec(ctx, `
		UPDATE cohort c
		SET next_at = n.next_at, due_at = n.due_at, run_at = n.run_at, run_from = n.run_from, run_missed = n.run_missed,
			at_spread = n.at_spread, at_id = n.at_id, empty_at = n.empty_at, run_drop = n.run_drop
		FROM unnest($2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
			$7::int[], $8::bigint[], $9::bigint[], $10::timestamptz[], $11::boolean[])
			AS n (id, next_at, due_at, run_at, run_from, run_missed, at_spread, at_id, empty_at, run_drop)
		WHERE c.shard = $1 AND c.id = n.id`,
		shard, ids, next, dueAt, runAt, runFrom, missed, spreads, afters, empty, drop)
	if err != nil {
		return fmt.Errorf("advance cohorts: %w", err)
	}
	return nil
}

func (d *Dispatch) insertChunks(ctx context.Context, tx pgx.Tx, cs *chunks) error {
	made, err := cs.insert(ctx, tx)
	if err != nil || len(made) == 0 {
		return err
	}
	jobs := make([]river.InsertManyParams, len(made))
	for i, c := range made {
		jobs[i] = openJob(c.id, c.lane)
	}
	if _, err := d.river.InsertManyFastTx(ctx, tx, jobs); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}
