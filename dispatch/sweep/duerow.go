package sweep

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// DueColumns are the columns of a due cohort c of shard $1. A subquery by the key of turn finds whether the tenant is queued: IN or EXISTS
// would read all turns of the shard, of which there are as many as suspended tenants.
const DueColumns = `c.ctid, c.id, c.tenant_id, c.workflow, c.hash, c.missed, c.next_at, c.run_at, c.run_from, c.run_missed, c.run_drop,
			c.at_phase, c.at_id, c.throttled_at, c.retime_at, c.revision, c.tzdata,
			(SELECT true FROM fair_turn w WHERE w.shard = $1 AND w.tenant_id = c.tenant_id LIMIT 1) IS NOT NULL AS waits`

// dueRow is the scan target of DueColumns. One dueRow serves all rows of a statement, because their texts are mostly equal to those of the
// previous row. Nullable columns have pgtype fields, because pgx needs reflection for a pointer to a pointer.
type dueRow struct {
	due
	nextAt, runAt, runFrom, throttledAt, retimeAt pgtype.Timestamptz
	runLost                                       pgtype.Int4
	runDrop                                       pgtype.Bool
	atPhase, atID                                 pgtype.Int8
}

// fields returns the scan targets of DueColumns.
func (r *dueRow) fields() []any {
	return []any{
		&r.Row, &r.ID, (*int32)(&r.TenantID), &r.Workflow, &r.Hash, &r.Missed, &r.nextAt, &r.runAt, &r.runFrom, &r.runLost, &r.runDrop,
		&r.atPhase, &r.atID, &r.throttledAt, &r.retimeAt, &r.Revision, &r.TZData, &r.Waits,
	}
}

// dues collects cohorts. It allocates them in blocks.
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
	c.RunAt, c.RunFrom, c.ThrottledAt, c.RetimeAt = orNil(r.runAt), orNil(r.runFrom), orNil(r.throttledAt), orNil(r.retimeAt)
	if r.runLost.Valid {
		c.RunLost = new(r.runLost.Int32)
	}
	if r.runDrop.Valid {
		c.RunDrop = new(r.runDrop.Bool)
	}
	if r.atPhase.Valid {
		c.AtPhase = new(r.atPhase.Int64)
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

// word is a text with few different values. Scanning the same value again makes no copy.
type word string

func (w *word) ScanBytes(text []byte) error {
	if string(text) != string(*w) {
		*w = word(text)
	}
	return nil
}

// digest is the hash of a timing, which is the key of the timing cache. Cohorts of fixed_delay have more bytes after it, which
// distinguish them; digest ignores these.
type digest [16]byte

func (d *digest) ScanBytes(value []byte) error {
	if len(value) < len(d) {
		return fmt.Errorf("a hash of %d bytes", len(value))
	}
	copy(d[:], value)
	return nil
}

// collectDue reads rows of DueColumns.
func collectDue(rows pgx.Rows) ([]*due, error) {
	var found dues
	var row dueRow
	_, err := pgx.ForEachRow(rows, row.fields(), func() error {
		found.add(&row)
		return nil
	})
	return found.all, err
}

// collectWithMembers reads rows of DueColumns, due_at and a member: one row for each of the first two members of a cohort, or one row
// without a member. first is the earliest due_at.
func collectWithMembers(rows pgx.Rows) (cohorts []*due, first time.Time, err error) {
	var found dues
	var row dueRow
	var dueAt time.Time
	var id pgtype.Int8
	var from, until pgtype.Timestamptz
	_, err = pgx.ForEachRow(rows, append(row.fields(), &dueAt, &id, &from, &until), func() error {
		if first.IsZero() || dueAt.Before(first) {
			first = dueAt
		}
		if n := len(found.all); n > 0 && found.all[n-1].ID == row.ID {
			found.all[n-1].members = moreMembers
			return nil
		}
		if c := found.add(&row); id.Valid {
			c.members, c.first, c.counts = oneMember, chunk.Member{ID: id.Int64}, counts{from.Time, orNil(until)}
		}
		return nil
	})
	return found.all, first, err
}
