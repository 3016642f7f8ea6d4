package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// due is a due cohort. It begins with the values of DueColumns, in the order of fields.
type due struct {
	Row         pgtype.TID // its physical row, which nobody else changes while the shard is locked
	ID          int64
	TenantID    tenants.ID
	Workflow    word
	Hash        digest
	Missed      word
	NextAt      *time.Time
	RunAt       *time.Time
	RunFrom     *time.Time
	RunLost     *int32
	RunDrop     *bool
	AtPhase     *int64
	AtID        *int64
	ThrottledAt *time.Time
	RetimeAt    *time.Time
	Revision    int64 // with TZData: the calendars and the tz database of its times
	TZData      word
	Waits       bool // its tenant is queued in the shard

	next   time.Time // what NextAt points to
	timing *calendar.Timing
	run    runs.Run
	begun  bool // this transaction has reached the cohort
	whole  bool // it has read all members up to the end of the leg or run
	empty  bool // the cohort has no members
	cut    bool // the cohort has more members than a pass reads of one cohort
	out    bool // with fixed_delay: the tick of its only member is handed out, and the end of that tick sets the next time

	fromPhase, fromID int64 // where reading began
	waits, stopped    bool  // it joins or stays in the queue; its tenant is stopped, so it begins no run
	paced             bool  // with waits: it waits for the rate of its workflow

	walk  runs.Walk // with jitter
	leg   *runs.Leg // the part of the walk in this transaction; nil: there is no jitter
	ahead *int64    // the phase of the walk's next member

	members int          // how many members were read with the cohort: unread, noMember, oneMember or moreMembers
	first   chunk.Member // valid with oneMember
	counts  counts       // of first
}

// How many members were read together with a cohort.
const (
	unread = iota - 1
	noMember
	oneMember
	moreMembers
)

const mostTries = 2000

// found is what is due in a shard.
type found struct {
	now     time.Time
	from    dueLook // the floors at which reading began
	cohorts []*due
	tries   map[tenants.ID][]record.Try
	turns   []tenants.ID
	held    bool // some workflow is held
	rated   bool // some workflow has a rate
}

// skewClock makes the statement read a clock that runs ahead, when the fault lab asks for it.
func skewClock(sql string) string {
	return sabotage.LocalClock.Instead(sql, postgres.Now, "("+postgres.Now+" + interval '2 seconds')")
}

// takeDue locks the shard, reads the clock under the lock, and reads what is due: cohorts, turns and delayed ticks. It deletes the delayed
// ticks that it reads.
func takeDue(ctx context.Context, tx pgx.Tx, shard int16, from dueLook) (f found, err error) {
	f.from = from
	var b pgx.Batch
	queueDue(&b, shard, f.from)
	results := tx.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	for range 2 {
		if _, err = results.Exec(); err != nil {
			return f, fmt.Errorf("lock shard %d: %w", shard, err)
		}
	}
	err = f.collect(results)
	return f, err
}

// queueDue queues the statements whose results collect reads, in the same order.
func queueDue(b *pgx.Batch, shard int16, from dueLook) {
	b.Queue(postgres.GenericPlans)
	cohorts.LockShard(b, shard)
	b.Queue(skewClock(nowAndHeld))
	// Many cohorts have at most one member. So this statement reads the first two members of each cohort, which lie next to one
	// another. A LATERAL with a LIMIT leaves the planner no plan but a nested loop. The sweep decides which members of larger
	// cohorts it serves.
	b.Queue(skewClock(`
		SELECT c.*, m.schedule_id, m.from_at, m.until_at
		FROM (
			SELECT `+DueColumns+`, c.due_at
			FROM cohort c
			WHERE c.shard = $1 AND c.due_at BETWEEN $3 AND (SELECT `+postgres.Now+`)
			ORDER BY c.due_at
			LIMIT $2
		) c
		LEFT JOIN LATERAL (
			SELECT schedule_id, from_at, until_at
			FROM member
			WHERE cohort_id = c.id AND tenant_id = c.tenant_id
			ORDER BY phase, schedule_id
			LIMIT 2
		) m ON true`), shard, mostCohorts, from.Cohort.From)
	b.Queue(`
		SELECT tenant_id
		FROM fair_turn
		WHERE shard = $1 AND due_at BETWEEN $3 AND (SELECT `+postgres.Now+`)
		ORDER BY due_at
		LIMIT $2`, shard, mostTurns, from.turn.From)
	b.Queue(`
		DELETE FROM delayed
		WHERE (tenant_id, schedule_id, nominal_at, seq) IN (
			SELECT tenant_id, schedule_id, nominal_at, seq
			FROM delayed
			WHERE shard = $1 AND due_at BETWEEN $3 AND (SELECT `+postgres.Now+`)
			ORDER BY due_at
			LIMIT $2)
		RETURNING tenant_id, schedule_id, nominal_at, seq, attempt, why = 'answer'`, shard, mostTries, from.Delayed.From)
}

// collect reads the clock, whether any workflow is held or has a rate, and then what is due.
func (f *found) collect(results pgx.BatchResults) (err error) {
	if err = results.QueryRow().Scan(&f.now, &f.held, &f.rated); err != nil {
		return fmt.Errorf("read clock, and look for held workflows: %w", err)
	}
	f.now = f.now.UTC()
	rows, _ := results.Query() // ForEachRow reports the error
	var first time.Time
	if f.cohorts, first, err = collectWithMembers(rows); err != nil {
		return fmt.Errorf("read due cohorts: %w", err)
	}
	if len(f.cohorts) > 0 { // the next sweep need not read the cohorts that this one takes
		f.from.Cohort.Found(first)
	}
	rows, _ = results.Query() // CollectRows reports the error
	if f.turns, err = pgx.CollectRows(rows, pgx.RowTo[tenants.ID]); err != nil {
		return fmt.Errorf("read turns: %w", err)
	}
	rows, err = results.Query()
	if err != nil {
		return fmt.Errorf("take delayed ticks: %w", err)
	}
	f.tries = map[tenants.ID][]record.Try{}
	var tenant tenants.ID
	var t record.Try
	_, err = pgx.ForEachRow(rows, []any{&tenant, &t.Schedule, &t.At, &t.Seq, &t.Attempt, &t.Answer}, func() error {
		t.At = t.At.UTC()
		f.tries[tenant] = append(f.tries[tenant], t)
		return nil
	})
	return err
}

// source returns the cohort as what its run is swept from.
func (c *due) source() chunk.Source {
	return chunk.Source{Tenant: c.TenantID, Cohort: c.ID, Workflow: string(c.Workflow), Run: c.run, Dated: c.Revision != 0}
}
