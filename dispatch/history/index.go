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

// rollAt is a place in the roll: before the row of a time and number, but for the first Left of its ticks.
type rollAt struct {
	At   time.Time `json:"a"`
	ID   int64     `json:"i"`
	Left int       `json:"l"`
}

// rolled is a row of the roll.
type rolled struct {
	ID        int64
	NominalAt time.Time
	Ticks     int
	Items     []byte
}

const rollRows = 100 // read at once

// walkRoll calls see with the keys of ticks, as many together as the walk says, gathered from as many rows as that takes, and with
// the place of each key: another walk from there begins with that tick. The walk ends when see returns that it has enough.
func (r *Reader) walkRoll(ctx context.Context, w rollWalk, see func(keys []ident.TickKey, places []rollAt) (enough bool, err error)) error {
	from := w.from
	only, args := "", []any{w.tenant, from.At, from.ID, w.oldest, rollRows}
	if w.workflow != "" {
		only, args = " AND workflow = $6", append(args, w.workflow)
	}
	var keys []ident.TickKey
	var places []rollAt
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
			FROM roll
			WHERE tenant_id = $1 AND (nominal_at, id) <= ($2, $3) AND nominal_at >= $4`+only+`
			ORDER BY nominal_at DESC, id DESC
			LIMIT $5`, args...) // CollectRows reports the error
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[rolled])
		if err != nil {
			return fmt.Errorf("read the roll: %w", err)
		}
		for _, row := range found {
			all, err := record.UnpackKeys(row.Items, row.NominalAt.UTC(), row.Ticks)
			if err != nil {
				return fmt.Errorf("roll %d: %w", row.ID, err)
			}
			if row.ID == from.ID && row.NominalAt.Equal(from.At) {
				all = all[:min(from.Left, len(all))]
			}
			for left := len(all); left > 0; left-- {
				keys, places = append(keys, all[left-1]), append(places, rollAt{row.NominalAt.UTC(), row.ID, left})
				if len(keys) < w.together {
					continue
				}
				if enough, err := show(); err != nil || enough {
					return err
				}
			}
			from = rollAt{row.NominalAt.UTC(), row.ID, 0}
		}
		if len(found) < rollRows {
			_, err := show()
			return err
		}
	}
}

// rollEnd is the place behind everything before a time.
func rollEnd(to time.Time) rollAt {
	return rollAt{At: to.Add(-time.Microsecond), ID: math.MaxInt64, Left: math.MaxInt32}
}

// rollWalk is a walk through the roll of a tenant, from a place back to a time, newest first.
type rollWalk struct {
	tenant   tenants.ID
	workflow string // empty: ticks of all workflows
	from     rollAt
	oldest   time.Time
	together int // how many ticks are shown at once
}
