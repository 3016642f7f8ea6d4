package sweep

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// DueFloors are the floors of the indexes by due_at, for each shard.
type DueFloors struct {
	cohort, delayed, turn [cohorts.Shards]cluster.Floor
	search                cluster.Search
}

// dueLook is one reading of a shard's indexes by due_at.
type dueLook struct{ Cohort, Delayed, turn cluster.Look }

// Look begins a reading of a shard at its floors. A full one begins at the low ends of the indexes.
func (f *DueFloors) Look(shard int16, h *cluster.Horizon, full bool) dueLook {
	return dueLook{f.cohort[shard].Look(h, full), f.delayed[shard].Look(h, full), f.turn[shard].Look(h, full)}
}

// dueLooks are readings of several shards. Their floors are columns for a query.
type dueLooks struct {
	shards                 []int16
	looks                  map[int16]dueLook
	cohort, delayed, turns []time.Time
}

// begin begins readings of shards.
func (f *DueFloors) begin(shards []int16, h *cluster.Horizon) dueLooks {
	l := dueLooks{shards: shards, looks: make(map[int16]dueLook, len(shards))}
	for _, shard := range shards {
		one := f.Look(shard, h, false)
		l.looks[shard] = one
		l.cohort, l.delayed, l.turns = append(l.cohort, one.Cohort.From), append(l.delayed, one.Delayed.From), append(l.turns, one.turn.From)
	}
	return l
}

// dueSoon is how far ahead a look reads. The next one comes earlier than that.
const dueSoon = 2 * lookEvery

// firstDue reads the first due time of cohorts, delayed ticks and turns in shards: $1 are the shards, $2 to $4 the floors, and $5 how far
// ahead to read. It reads no further, because an old snapshot may keep many dead index entries with later times.
const firstDue = `
		SELECT s.shard, c.due_at, h.due_at, t.due_at, ` + postgres.Now + `
		FROM unnest($1::smallint[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[]) AS s (shard, cohort, delayed, fair_turn)
		LEFT JOIN LATERAL (
			SELECT due_at FROM cohort WHERE cohort.shard = s.shard AND due_at BETWEEN s.cohort AND (SELECT ` + postgres.Now + `) + $5::interval ORDER BY due_at LIMIT 1
		) c ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM delayed WHERE delayed.shard = s.shard AND due_at BETWEEN s.delayed AND (SELECT ` + postgres.Now + `) + $5::interval ORDER BY due_at LIMIT 1
		) h ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM fair_turn WHERE fair_turn.shard = s.shard AND due_at BETWEEN s.fair_turn AND (SELECT ` + postgres.Now + `) + $5::interval ORDER BY due_at LIMIT 1
		) t ON true`

// Look adds the due shards to the queue, except those that are already queued or being swept. It returns the wait until the next look.
func (s *Sweeper) Look(ctx context.Context, busy *shardSet, due chan<- int16) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, alive := s.cluster.Member.Self(); !alive {
		return lookEvery, nil
	}
	wait := lookEvery
	err := s.FirstDue(ctx, &s.floors, busy.others(s.cluster.Member.Shards(), time.Now()), func(first ShardDue) {
		at := cluster.Earliest(first.Cohort, first.Delayed, first.Turn)
		if left := at.Sub(first.now); left > 0 {
			wait = min(wait, left+lookLate)
			return
		}
		if !at.IsZero() && busy.add(first.shard) {
			due <- first.shard
		}
	})
	if err == nil {
		err = s.SearchDue(ctx, &s.floors, s.cluster.Member.Shards())
	}
	if err != nil {
		return lookEvery, err
	}
	return wait, nil
}

// ShardDue has the first due times of a shard. The zero time means that none is within dueSoon.
type ShardDue struct {
	shard                 int16
	Cohort, Delayed, Turn time.Time
	now                   time.Time // by the database's clock
}

// FirstDue calls fn with the first due times of each shard.
func (s *Sweeper) FirstDue(ctx context.Context, floors *DueFloors, shards []int16, fn func(ShardDue)) error {
	l := floors.begin(shards, s.cluster.Horizon)
	rows, err := s.pool.Query(ctx, skewClock(firstDue), l.shards, l.cohort, l.delayed, l.turns, dueSoon)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var first ShardDue
		var cohort, delayed, turn pgtype.Timestamptz
		if err := rows.Scan(&first.shard, &cohort, &delayed, &turn, &first.now); err != nil {
			return err
		}
		first.Cohort, first.Delayed, first.Turn = cohort.Time, delayed.Time, turn.Time
		one := l.looks[first.shard]
		one.Cohort.Found(first.Cohort)
		one.Delayed.Found(first.Delayed)
		one.turn.Found(first.Turn)
		fn(first)
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
			SELECT due_at FROM delayed WHERE delayed.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) h ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM fair_turn WHERE fair_turn.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) t ON true`

// SearchDue searches below the floors of shards, and lowers them to the rows that it finds.
func (s *Sweeper) SearchDue(ctx context.Context, floors *DueFloors, shards []int16) error {
	w, is := floors.search.Begin(s.cluster.Horizon, time.Now())
	if !is {
		return nil
	}
	var b pgx.Batch
	b.Queue(firstBelow, shards, w.From, w.To).Query(func(rows pgx.Rows) error {
		var shard int16
		var cohort, delayed, turn pgtype.Timestamptz
		_, err := pgx.ForEachRow(rows, []any{&shard, &cohort, &delayed, &turn}, func() error {
			floors.cohort[shard].Lower(w.Era, cohort.Time)
			floors.delayed[shard].Lower(w.Era, delayed.Time)
			floors.turn[shard].Lower(w.Era, turn.Time)
			return nil
		})
		return err
	})
	entries := cluster.EntriesRead(&b, "cohort_due", "delayed_due", "fair_turn_due")
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	floors.search.Ended(w, *entries, time.Now())
	return nil
}

// Overdue returns how long ago a due time was, or 0 if it is not past.
func (s *ShardDue) Overdue(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(0, s.now.Sub(at))
}
