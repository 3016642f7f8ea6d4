package dispatch

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// dueFloors are the floors of what a sweep reads by due_at.
type dueFloors struct {
	cohort, held, turn [cohorts.Shards]cluster.Floor
	search             cluster.Search
}

// dueLook is one reading of what is due in a shard.
type dueLook struct{ cohort, held, turn cluster.Look }

func (f *dueFloors) look(shard int16, h *cluster.Horizon, full bool) dueLook {
	return dueLook{f.cohort[shard].Look(h, full), f.held[shard].Look(h, full), f.turn[shard].Look(h, full)}
}

// dueLooks are readings of several shards, with where they begin as columns.
type dueLooks struct {
	shards              []int16
	looks               map[int16]dueLook
	cohort, held, turns []time.Time
}

// begin begins readings of shards.
func (f *dueFloors) begin(shards []int16, h *cluster.Horizon) dueLooks {
	l := dueLooks{shards: shards, looks: make(map[int16]dueLook, len(shards))}
	for _, shard := range shards {
		one := f.look(shard, h, false)
		l.looks[shard] = one
		l.cohort, l.held, l.turns = append(l.cohort, one.cohort.From), append(l.held, one.held.From), append(l.turns, one.turn.From)
	}
	return l
}

// dueSoon is how far ahead a look reads. The next one comes earlier than that.
const dueSoon = 2 * lookEvery

// firstDue reads the first due time of cohorts, held ticks and turns of shards: $1 names them, $2 to $4 tell where to begin, and $5
// how far ahead to read. Times that lie further ahead may be those of many rows that were changed since, whose entries an old
// snapshot keeps.
const firstDue = `
		SELECT s.shard, c.due_at, h.due_at, t.due_at, ` + postgres.Now + `
		FROM unnest($1::smallint[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[]) AS s (shard, cohort, held, turn)
		LEFT JOIN LATERAL (
			SELECT due_at FROM cohort WHERE cohort.shard = s.shard AND due_at BETWEEN s.cohort AND (SELECT ` + postgres.Now + `) + $5::interval ORDER BY due_at LIMIT 1
		) c ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM held WHERE held.shard = s.shard AND due_at BETWEEN s.held AND (SELECT ` + postgres.Now + `) + $5::interval ORDER BY due_at LIMIT 1
		) h ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM turn WHERE turn.shard = s.shard AND due_at BETWEEN s.turn AND (SELECT ` + postgres.Now + `) + $5::interval ORDER BY due_at LIMIT 1
		) t ON true`

// look puts the due shards in the queue, except those that are in it or being swept. It returns how long to wait until the next
// look.
func (d *Dispatch) look(ctx context.Context, busy *shardSet, due chan<- int16) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, alive := d.process.Self(); !alive {
		return lookEvery, nil
	}
	wait := lookEvery
	err := d.firstDue(ctx, &d.floors, busy.others(d.process.Shards(), time.Now()), func(s shardDue) {
		at := cluster.Earliest(s.cohort, s.held, s.turn)
		if left := at.Sub(s.now); left > 0 {
			wait = min(wait, left+lookLate)
			return
		}
		if !at.IsZero() && busy.add(s.shard) {
			due <- s.shard
		}
	})
	if err == nil {
		err = d.searchDue(ctx, &d.floors, d.process.Shards())
	}
	if err != nil {
		return lookEvery, err
	}
	return wait, nil
}

// shardDue are the first due times of a shard; the zero time: there is none up to dueSoon.
type shardDue struct {
	shard              int16
	cohort, held, turn time.Time
	now                time.Time // by the database's clock
}

// firstDue calls fn with what is due first in each of some shards, or is about to be.
func (d *Dispatch) firstDue(ctx context.Context, floors *dueFloors, shards []int16, fn func(shardDue)) error {
	l := floors.begin(shards, &d.horizon)
	rows, err := d.Pool.Query(ctx, skewClock(firstDue), l.shards, l.cohort, l.held, l.turns, dueSoon)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var s shardDue
		var cohort, held, turn pgtype.Timestamptz
		if err := rows.Scan(&s.shard, &cohort, &held, &turn, &s.now); err != nil {
			return err
		}
		s.cohort, s.held, s.turn = cohort.Time, held.Time, turn.Time
		one := l.looks[s.shard]
		one.cohort.Found(s.cohort)
		one.held.Found(s.held)
		one.turn.Found(s.turn)
		fn(s)
	}
	return rows.Err()
}

// firstBelow is like firstDue, for due times from $2 up to $3.
const firstBelow = `
		SELECT s.shard, c.due_at, h.due_at, t.due_at
		FROM unnest($1::smallint[]) AS s (shard)
		LEFT JOIN LATERAL (
			SELECT due_at FROM cohort WHERE cohort.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) c ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM held WHERE held.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) h ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM turn WHERE turn.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) t ON true`

// searchDue lowers the floors of shards to what it finds below them.
func (d *Dispatch) searchDue(ctx context.Context, floors *dueFloors, shards []int16) error {
	w, is := floors.search.Begin(&d.horizon, time.Now())
	if !is {
		return nil
	}
	var b pgx.Batch
	b.Queue(firstBelow, shards, w.From, w.To).Query(func(rows pgx.Rows) error {
		var shard int16
		var cohort, held, turn pgtype.Timestamptz
		_, err := pgx.ForEachRow(rows, []any{&shard, &cohort, &held, &turn}, func() error {
			floors.cohort[shard].Lower(w.Era, cohort.Time)
			floors.held[shard].Lower(w.Era, held.Time)
			floors.turn[shard].Lower(w.Era, turn.Time)
			return nil
		})
		return err
	})
	entries := cluster.EntriesRead(&b, "cohort_due", "held_due", "turn_due")
	if err := d.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	floors.search.Ended(w, *entries, time.Now())
	return nil
}
