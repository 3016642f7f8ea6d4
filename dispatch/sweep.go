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
	RetimeAt *time.Time

	Revision int64  // with TZData: by what it is timed
	TZData   string `db:"tzdata"`

	timing *calendar.Timing
	run    schedules.Run
	begun  bool // this transaction reached it
	whole  bool // and read all of its members that it was to read
	empty  bool // of which there are none

	walk  schedules.Walk // with jitter
	leg   *schedules.Leg // of the walk, that this transaction goes; nil: there is no jitter
	ahead *int64         // the spread of the member that the walk comes to next
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
		SELECT id, tenant_id, workflow, hash, missed, next_at, run_at, run_from, run_missed, run_drop, at_spread, at_id,
			retime_at, revision, tzdata
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
	if cohorts, err = d.retime(ctx, tx, shard, cohorts); err != nil || len(cohorts) == 0 {
		return 0, err
	}
	members, ticks, err := readMembers(ctx, tx, cohorts)
	if err != nil {
		return 0, err
	}
	for i, c := range cohorts {
		chunks.addMembers(c, members[i])
	}
	if err := lookAhead(ctx, tx, cohorts); err != nil {
		return 0, err
	}
	return ticks, advance(ctx, tx, shard, now, cohorts)
}

// begin finds the timing of each cohort and the run that it is in or begins. A cohort that cannot be computed is put
// aside, alone.
func (d *Dispatch) begin(ctx context.Context, tx pgx.Tx, shard int16, now time.Time, cohorts []*due) ([]*due, error) {
	names := make([]schedules.CohortTiming, len(cohorts))
	for i, c := range cohorts {
		names[i] = schedules.CohortTiming{Tenant: c.TenantID, Shard: shard, ID: c.ID, Hash: c.Hash, Stamp: schedules.Stamp{Revision: c.Revision, TZData: c.TZData}}
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
		switch {
		case c.served():
			continue
		case c.RunAt != nil:
			c.run = schedules.Resume(c.timing, c.RunAt.UTC(), c.RunFrom.UTC(), int(*c.RunLost), *c.RunDrop, now)
		default:
			until := now
			if c.RetimeAt != nil {
				until = *c.RetimeAt
			}
			c.run = schedules.BeginRunUntil(c.timing, c.NextAt.UTC(), until, now, c.Missed)
		}
		if walk, jitters := schedules.WalkOf(c.timing, c.run, c.Workflow); jitters {
			c.walk, c.leg = walk, new(walk.Leg(c.AtSpread, c.AtID, now))
		}
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
