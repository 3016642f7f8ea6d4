package history

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// indexAt is a place in the index: in the row with a time and number, before the first Left of its ticks. Lists go from the last tick
// of a row to its first.
type indexAt struct {
	At   time.Time `json:"a"`
	ID   int64     `json:"i"`
	Left int       `json:"l"`
}

// indexRow is a row of the index by time (table tick_time).
type indexRow struct {
	ID        int64
	NominalAt time.Time
	Ticks     int
	Items     []byte
}

const indexRows = 100 // read at once

// walkIndex calls see with the keys of w.together ticks at a time, however many rows they come from, and with the place of each key. A
// walk from such a place begins with that tick. The walk ends when see returns that it has enough.
func (r *Reader) walkIndex(ctx context.Context, w indexWalk, see func(keys []ident.TickKey, places []indexAt) (enough bool, err error)) error {
	from := w.from
	only, args := "", []any{w.tenant, from.At, from.ID, w.oldest, indexRows}
	if w.workflow != "" {
		only, args = " AND workflow = $6", append(args, w.workflow)
	}
	var keys []ident.TickKey
	var places []indexAt
	show := func() (enough bool, err error) {
		if len(keys) > 0 {
			enough, err = see(keys, places)
		}
		keys, places = keys[:0], places[:0]
		return enough, err
	}
	for {
		args[1], args[2] = from.At, from.ID
		rows, _ := r.api.Query(ctx, `
			SELECT id, nominal_at, ticks, items
			FROM tick_time
			WHERE tenant_id = $1 AND (nominal_at, id) <= ($2, $3) AND nominal_at >= $4`+only+`
			ORDER BY nominal_at DESC, id DESC
			LIMIT $5`, args...) // CollectRows reports the error
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[indexRow])
		if err != nil {
			return fmt.Errorf("read the index by time: %w", err)
		}
		for _, row := range found {
			all, err := record.UnpackKeys(row.Items, row.NominalAt.UTC(), row.Ticks)
			if err != nil {
				return fmt.Errorf("entry %d of the index by time: %w", row.ID, err)
			}
			if row.ID == from.ID && row.NominalAt.Equal(from.At) {
				all = all[:min(from.Left, len(all))]
			}
			for left := len(all); left > 0; left-- {
				keys, places = append(keys, all[left-1]), append(places, indexAt{row.NominalAt.UTC(), row.ID, left})
				if len(keys) < w.together {
					continue
				}
				if enough, err := show(); err != nil || enough {
					return err
				}
			}
			from = indexAt{row.NominalAt.UTC(), row.ID, 0}
		}
		if len(found) < indexRows {
			_, err := show()
			return err
		}
	}
}

// indexEnd returns the place from which a walk begins with the ticks before a time.
func indexEnd(to time.Time) indexAt {
	return indexAt{At: to.Add(-time.Microsecond), ID: math.MaxInt64, Left: math.MaxInt32}
}

// indexWalk is a walk through the index of a tenant, from a place back to a time, newest first.
type indexWalk struct {
	tenant   tenants.ID
	workflow string // empty: ticks of all workflows
	from     indexAt
	oldest   time.Time
	together int // how many ticks are shown at once
}
