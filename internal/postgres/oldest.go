package postgres

import (
	"context"
	"strings"
	"time"
)

// wholeEvery is the pause between two looks that begin at the lowest index entry.
const wholeEvery = time.Hour

// Edge is the time up to which a look for old rows has found all. It is for one goroutine at a time.
//
// While an old snapshot is open, the index entries of deleted rows stay, and a look that began at the lowest entry would read all of
// them. So each look begins where the last one ended. Once an hour a look begins at the lowest entry, because the transaction of an older
// row may have committed late.
type Edge struct{ at, whole time.Time }

// From returns the time from which to look, which is zero once an hour.
func (e *Edge) From() time.Time {
	if now := time.Now(); e.at.IsZero() || now.Sub(e.whole) >= wholeEvery {
		e.at, e.whole = time.Time{}, now
	}
	return e.at
}

// Reached notes that the look from From on has found all rows before a time.
func (e *Edge) Reached(at time.Time) { e.at = at }

// Oldest deletes the rows of a table that are older than Kept, the oldest first. It is for one goroutine at a time.
type Oldest struct {
	Delete string // DELETE FROM and the table
	Where  string // a condition besides the time, and AND; or empty
	Column string // the time of a row. It is in an index, after the columns of Where
	Kept   time.Duration

	edge Edge
}

// Some deletes at most most rows, and returns how many it deleted. The clock is read once: a comparison with the clock itself, which is
// volatile, would read every row.
func (o *Oldest) Some(ctx context.Context, db DB, most int) (n int64, err error) {
	var last, end time.Time
	if err := db.QueryRow(ctx, `
		WITH clock AS MATERIALIZED (
			SELECT `+Now+` - $2::interval AS past
		), gone AS (
			`+o.Delete+`
			WHERE ctid = ANY (ARRAY (
				SELECT ctid
				FROM `+strings.TrimPrefix(o.Delete, "DELETE FROM ")+`
				WHERE `+o.Where+o.Column+` >= $1 AND `+o.Column+` < (SELECT past FROM clock)
				ORDER BY `+o.Column+`
				LIMIT $3))
			RETURNING `+o.Column+` AS at
		)
		SELECT (SELECT count(*) FROM gone), COALESCE((SELECT max(at) FROM gone), $1), past FROM clock`, o.edge.From(), o.Kept, most).Scan(&n, &last, &end); err != nil {
		return 0, err
	}
	if n >= int64(most) { // there may be more
		end = last
	}
	o.edge.Reached(end)
	return n, nil
}
