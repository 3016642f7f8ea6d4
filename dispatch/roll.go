package dispatch

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/varint"
	"github.com/carillonhq/carillon/tenants"
)

// rollName is what the ticks of one row of the roll have in common.
type rollName struct {
	tenant   tenants.ID
	workflow string
	at       int64 // in seconds
}

// rollEntries are rows of the roll: one for the ticks of a workflow and nominal time, two bytes a tick.
type rollEntries map[rollName][]ident.TickKey

func (r *rollEntries) add(tenant tenants.ID, ticks []tick) {
	if *r == nil {
		*r = rollEntries{}
	}
	for i := 0; i < len(ticks); {
		name := rollName{tenant, ticks[i].workflow, ticks[i].NominalAt.Unix()}
		keys := (*r)[name]
		for ; i < len(ticks) && ticks[i].NominalAt.Unix() == name.at && ticks[i].workflow == name.workflow; i++ {
			keys = append(keys, ticks[i].key())
		}
		(*r)[name] = keys
	}
}

// queue writes the rows.
func (r rollEntries) queue(b *pgx.Batch) {
	if len(r) == 0 {
		return
	}
	var owners, counts []int32
	var workflows []string
	var times []time.Time
	var items [][]byte
	for name, keys := range r {
		owners, workflows, times = append(owners, int32(name.tenant)), append(workflows, name.workflow), append(times, time.Unix(name.at, 0).UTC())
		counts, items = append(counts, int32(len(keys))), append(items, packRoll(keys))
	}
	b.Queue(`
		INSERT INTO roll (tenant_id, nominal_at, workflow, ticks, items)
		SELECT tenant_id, at, workflow, ticks, items
		FROM unnest($1::int[], $2::timestamptz[], $3::text[], $4::int[], $5::bytea[]) AS n (tenant_id, at, workflow, ticks, items)`,
		owners, times, workflows, counts, items)
}

// queueRoll enters ticks of a tenant in the roll.
func queueRoll(b *pgx.Batch, tenant tenants.ID, ticks []tick) {
	var rows rollEntries
	rows.add(tenant, ticks)
	rows.queue(b)
}

// packRoll packs the schedules of ticks, rising, as varint deltas, each with its seq where that is not 0.
func packRoll(keys []ident.TickKey) []byte {
	slices.SortFunc(keys, func(a, b ident.TickKey) int {
		return cmp.Or(cmp.Compare(a.Schedule, b.Schedule), cmp.Compare(a.Seq, b.Seq))
	})
	var b []byte
	last := int64(0)
	for _, k := range keys {
		delta := uint64(k.Schedule-last) << 1
		if k.Seq == 0 {
			b = binary.AppendUvarint(b, delta)
		} else {
			b = binary.AppendUvarint(binary.AppendUvarint(b, delta|1), uint64(k.Seq))
		}
		last = k.Schedule
	}
	return b
}

func unpackRoll(b []byte, at time.Time, n int) ([]ident.TickKey, error) {
	r := varint.NewReader(b)
	keys := make([]ident.TickKey, n)
	last := int64(0)
	for i := range keys {
		delta := r.Next()
		last += int64(delta >> 1)
		keys[i] = ident.TickKey{Schedule: last, At: at}
		if delta&1 == 1 {
			keys[i].Seq = int32(r.Next())
		}
	}
	if !r.Whole() {
		return nil, errBroken
	}
	return keys, nil
}

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

// rollWalk is a walk through the roll of a tenant, from a place back to a time, newest first.
type rollWalk struct {
	tenant   tenants.ID
	workflow string // empty: ticks of all workflows
	from     rollAt
	oldest   time.Time
	together int // how many ticks are shown at once
}

// walkRoll calls see with the keys of ticks, as many together as the walk says, gathered from as many rows as that takes, and with
// the place of each key: another walk from there begins with that tick. The walk ends when see returns that it has enough.
func (d *Dispatch) walkRoll(ctx context.Context, w rollWalk, see func(keys []ident.TickKey, places []rollAt) (enough bool, err error)) error {
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
		rows, _ := d.API.Query(ctx, `
			SELECT id, nominal_at, ticks, items
			FROM roll
			WHERE tenant_id = $1 AND (nominal_at, id) <= ($2, $3) AND nominal_at >= $4`+only+`
			ORDER BY nominal_at DESC, id DESC
			LIMIT $5`, args...) // CollectRows reports the error
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[rolled])
		if err != nil {
			return fmt.Errorf("read the roll: %w", err)
		}
		for _, r := range found {
			all, err := unpackRoll(r.Items, r.NominalAt.UTC(), r.Ticks)
			if err != nil {
				return fmt.Errorf("roll %d: %w", r.ID, err)
			}
			if r.ID == from.ID && r.NominalAt.Equal(from.At) {
				all = all[:min(from.Left, len(all))]
			}
			for left := len(all); left > 0; left-- {
				keys, places = append(keys, all[left-1]), append(places, rollAt{r.NominalAt.UTC(), r.ID, left})
				if len(keys) < w.together {
					continue
				}
				if enough, err := show(); err != nil || enough {
					return err
				}
			}
			from = rollAt{r.NominalAt.UTC(), r.ID, 0}
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
