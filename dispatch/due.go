package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// due is a cohort whose time has come: first what dueColumns read, in the order of fields.
type due struct {
	Row      pgtype.TID // where it lies: nobody else changes it while the shard is locked
	ID       int64
	TenantID tenants.ID
	Workflow word
	Hash     digest
	Missed   word
	NextAt   *time.Time
	RunAt    *time.Time
	RunFrom  *time.Time
	RunLost  *int32
	RunDrop  *bool
	AtSpread *int64
	AtID     *int64
	WaitAt   *time.Time
	RetimeAt *time.Time
	Revision int64 // with TZData: by what it is timed
	TZData   word
	Waits    bool // others of its tenant's wait in line

	next   time.Time // what NextAt points to
	timing *calendar.Timing
	run    schedules.Run
	begun  bool // this transaction reached it
	whole  bool // and read all of its members that it was to read
	empty  bool // of which there are none
	cut    bool // it has more members than are read of one

	fromSpread, fromID int64 // where reading began
	waits, stopped     bool  // it comes into the line, or stays there; and does not begin a run

	walk  schedules.Walk // with jitter
	leg   *schedules.Leg // of the walk, that this transaction goes; nil: there is no jitter
	ahead *int64         // the spread of the member that the walk comes to next

	members int    // unread, or how many were read along with it: noMember, oneMember or moreMembers
	first   member // where it is one, from when until when nominal times count to it
	counts  counts
}

// What was read along with a cohort: nothing, that it has no member or one, or that it has more.
const (
	unread = iota - 1
	noMember
	oneMember
	moreMembers
)

// dueRow is a row of dueColumns as it is read. One is read into for all rows of a statement, whose texts are mostly those of the
// row before; what may be null is read as such, since a pointer to a pointer is found by reflection.
type dueRow struct {
	due
	nextAt, runAt, runFrom, waitAt, retimeAt pgtype.Timestamptz
	runLost                                  pgtype.Int4
	runDrop                                  pgtype.Bool
	atSpread, atID                           pgtype.Int8
}

// fields are where a row of dueColumns is read into.
func (r *dueRow) fields() []any {
	return []any{
		&r.Row, &r.ID, (*int32)(&r.TenantID), &r.Workflow, &r.Hash, &r.Missed, &r.nextAt, &r.runAt, &r.runFrom, &r.runLost, &r.runDrop,
		&r.atSpread, &r.atID, &r.waitAt, &r.retimeAt, &r.Revision, &r.TZData, &r.Waits,
	}
}

// dues makes cohorts of the rows that are read, several at a time.
type dues struct {
	all   []*due
	spare []due
}

const duesAtOnce = 64

func (d *dues) add(r *dueRow) *due {
	if len(d.spare) == 0 {
		d.spare = make([]due, duesAtOnce)
	}
	c := &d.spare[0]
	d.all, d.spare = append(d.all, c), d.spare[1:]
	*c = r.due
	c.members = unread
	if r.nextAt.Valid {
		c.next = r.nextAt.Time
		c.NextAt = &c.next
	}
	c.RunAt, c.RunFrom, c.WaitAt, c.RetimeAt = orNil(r.runAt), orNil(r.runFrom), orNil(r.waitAt), orNil(r.retimeAt)
	if r.runLost.Valid {
		c.RunLost = new(r.runLost.Int32)
	}
	if r.runDrop.Valid {
		c.RunDrop = new(r.runDrop.Bool)
	}
	if r.atSpread.Valid {
		c.AtSpread = new(r.atSpread.Int64)
	}
	if r.atID.Valid {
		c.AtID = new(r.atID.Int64)
	}
	return c
}

func orNil(at pgtype.Timestamptz) *time.Time {
	if !at.Valid {
		return nil
	}
	return new(at.Time)
}

// word is a text of few values, which is read without a copy where it is the one that was there.
type word string

func (w *word) ScanBytes(text []byte) error {
	if string(text) != string(*w) {
		*w = word(text)
	}
	return nil
}

// digest is the hash of a timing, by which that is kept in memory. What follows it, to tell the cohorts of fixed_delay from
// one another, is left out.
type digest [16]byte

func (d *digest) ScanBytes(value []byte) error {
	if len(value) < len(d) {
		return fmt.Errorf("a hash of %d bytes", len(value))
	}
	copy(d[:], value)
	return nil
}

// collectDue reads rows of dueColumns.
func collectDue(rows pgx.Rows) ([]*due, error) {
	var found dues
	var row dueRow
	_, err := pgx.ForEachRow(rows, row.fields(), func() error {
		found.add(&row)
		return nil
	})
	return found.all, err
}

// collectWithMembers reads rows of dueColumns and of the first two members of each cohort: a row for each of those, or one
// where there is none.
func collectWithMembers(rows pgx.Rows) ([]*due, error) {
	var found dues
	var row dueRow
	var id pgtype.Int8
	var from, until pgtype.Timestamptz
	_, err := pgx.ForEachRow(rows, append(row.fields(), &id, &from, &until), func() error {
		if n := len(found.all); n > 0 && found.all[n-1].ID == row.ID {
			found.all[n-1].members = moreMembers
			return nil
		}
		if c := found.add(&row); id.Valid {
			c.members, c.first, c.counts = oneMember, member{id: id.Int64}, counts{from.Time, orNil(until)}
		}
		return nil
	})
	return found.all, err
}

const mostTries = 2000

// found is what of a shard is due.
type found struct {
	now     time.Time
	cohorts []*due
	tries   map[tenants.ID][]try
	turns   []tenants.ID
}

// fast has a statement read a clock that is fast, where the fault lab wants it so.
func fast(sql string) string {
	return sabotage.LocalClock.Instead(sql, "clock_timestamp()", "(clock_timestamp() + interval '2 seconds')")
}

// dueColumns are the columns of a due cohort c of shard $1. The tenants that wait in line there are read once a statement: a
// join would look for each cohort's.
const dueColumns = `c.ctid, c.id, c.tenant_id, c.workflow, c.hash, c.missed, c.next_at, c.run_at, c.run_from, c.run_missed, c.run_drop,
			c.at_spread, c.at_id, c.wait_at, c.retime_at, c.revision, c.tzdata, c.tenant_id IN (SELECT tenant_id FROM turn WHERE shard = $1) AS waits`

// takeDue locks the shard, reads the clock under the lock, and reads what is due: cohorts, turns, and held ticks, which
// it takes out.
func takeDue(ctx context.Context, tx pgx.Tx, shard int16) (f found, err error) {
	var b pgx.Batch
	b.Queue(`SET LOCAL plan_cache_mode = force_generic_plan`)
	schedules.LockShard(&b, shard)
	b.Queue(fast(`SELECT clock_timestamp()`))
	// Many cohorts have one member or none, and what those are is read at once, two rows of a cohort being next to one another: no
	// plan but a nested loop is open to a LATERAL with a LIMIT. Which of more are served is for the sweep to say.
	b.Queue(fast(`
		SELECT c.*, m.schedule_id, m.from_at, m.until_at
		FROM (
			SELECT `+dueColumns+`
			FROM cohort c
			WHERE c.shard = $1 AND c.due_at <= (SELECT clock_timestamp())
			ORDER BY c.due_at
			LIMIT $2
		) c
		LEFT JOIN LATERAL (
			SELECT schedule_id, from_at, until_at
			FROM member
			WHERE cohort_id = c.id AND tenant_id = c.tenant_id
			ORDER BY spread, schedule_id
			LIMIT 2
		) m ON true`), shard, mostCohorts)
	b.Queue(`
		SELECT tenant_id
		FROM turn
		WHERE shard = $1 AND due_at <= (SELECT clock_timestamp())
		ORDER BY due_at
		LIMIT $2`, shard, mostTurns)
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
	for range 2 {
		if _, err = results.Exec(); err != nil {
			return f, fmt.Errorf("lock shard %d: %w", shard, err)
		}
	}
	if err = results.QueryRow().Scan(&f.now); err != nil {
		return f, fmt.Errorf("read clock: %w", err)
	}
	f.now = f.now.UTC()
	rows, _ := results.Query() // ForEachRow reports the error
	if f.cohorts, err = collectWithMembers(rows); err != nil {
		return f, fmt.Errorf("read due cohorts: %w", err)
	}
	rows, _ = results.Query() // CollectRows reports the error
	if f.turns, err = pgx.CollectRows(rows, pgx.RowTo[tenants.ID]); err != nil {
		return f, fmt.Errorf("read turns: %w", err)
	}
	rows, err = results.Query()
	if err != nil {
		return f, fmt.Errorf("take held ticks: %w", err)
	}
	f.tries = map[tenants.ID][]try{}
	var tenant tenants.ID
	var t try
	_, err = pgx.ForEachRow(rows, []any{&tenant, &t.Schedule, &t.At, &t.Seq, &t.Attempt, &t.Answer}, func() error {
		t.At = t.At.UTC()
		f.tries[tenant] = append(f.tries[tenant], t)
		return nil
	})
	return f, err
}
