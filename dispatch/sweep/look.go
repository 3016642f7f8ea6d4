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

// found notes what a reading found.
func (l dueLook) found(first ShardDue) {
	l.Cohort.Found(first.Cohort)
	l.Delayed.Found(first.Delayed)
	l.turn.Found(first.Turn)
}

// dueLooks are readings of several shards. Their floors are columns for a query.
type dueLooks struct {
	shards                 []int16
	looks                  []dueLook             // in the order of the shards
	place                  [cohorts.Shards]int16 // of each shard in looks
	cohort, delayed, turns instants
}

// begin begins readings of shards.
func (f *DueFloors) begin(shards []int16, h *cluster.Horizon) *dueLooks {
	n := len(shards)
	l := &dueLooks{shards: shards, looks: make([]dueLook, n), cohort: make(instants, n), delayed: make(instants, n), turns: make(instants, n)}
	for i, shard := range shards {
		one := f.Look(shard, h, false)
		l.looks[i], l.place[shard] = one, int16(i)
		l.cohort[i], l.delayed[i], l.turns[i] = instant(one.Cohort.From), instant(one.Delayed.From), instant(one.turn.From)
	}
	return l
}

// found notes what the reading of a shard found.
func (l *dueLooks) found(first ShardDue) {
	place := l.place[first.shard]
	l.looks[place].found(first)
	l.looks[place] = dueLook{}
}

// foundNothing notes that the other readings found nothing.
func (l *dueLooks) foundNothing() {
	for _, one := range l.looks {
		if one != (dueLook{}) {
			one.found(ShardDue{})
		}
	}
}

// instants is an array of timestamptz. Unlike a []time.Time, it is encoded without an allocation for each element.
type instants []pgtype.Timestamptz

func instant(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: true} }

func (a instants) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}}
}

func (a instants) Index(i int) any { return &a[i] }

func (a instants) IndexType() any { return &pgtype.Timestamptz{} }

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
		) t ON true
		WHERE c.due_at IS NOT NULL OR h.due_at IS NOT NULL OR t.due_at IS NOT NULL`

// Look adds the due shards to the queue, except those that are already queued or being swept. It returns the wait until the next look.
func (s *Sweeper) Look(ctx context.Context, busy *shardSet, due chan<- int16) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, alive := s.cluster.Member.Self(); !alive {
		return lookEvery, nil
	}
	wait := lookEvery
	all := s.cluster.Member.Shards()
	err := s.FirstDue(ctx, &s.floors, busy.others(all, time.Now()), all, func(first ShardDue) {
		at := cluster.Earliest(first.Cohort, first.Delayed, first.Turn)
		if left := at.Sub(first.now); left > 0 {
			wait = min(wait, left+lookLate)
			return
		}
		if !at.IsZero() && busy.add(first.shard) {
			due <- first.shard
		}
	})
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

// FirstDue calls fn with the first due times of each of some shards that has any within dueSoon. From time to time it also searches below the
// floors of all shards, in the same round trip, and lowers them to the rows that it finds.
func (s *Sweeper) FirstDue(ctx context.Context, floors *DueFloors, some, all []int16, fn func(ShardDue)) error {
	l := floors.begin(some, s.cluster.Horizon)
	var b pgx.Batch
	b.Queue(skewClock(firstDue), l.shards, l.cohort, l.delayed, l.turns, dueSoon).Query(func(rows pgx.Rows) error { return l.read(rows, fn) })
	w, search := floors.search.Begin(s.cluster.Horizon, time.Now())
	var below []ShardDue
	var entries int
	if search {
		b.Queue(firstBelow, all, w.From, w.To).Query(func(rows pgx.Rows) (err error) {
			below, entries, err = readBelow(rows)
			return err
		})
	}
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil || !search {
		return err
	}
	for _, found := range below {
		floors.cohort[found.shard].Lower(w.Era, found.Cohort)
		floors.delayed[found.shard].Lower(w.Era, found.Delayed)
		floors.turn[found.shard].Lower(w.Era, found.Turn)
	}
	floors.search.Ended(w, entries, time.Now())
	return nil
}

// read reads the rows of firstDue, and calls fn with each.
func (l *dueLooks) read(rows pgx.Rows, fn func(ShardDue)) error {
	var first ShardDue
	var cohort, delayed, turn pgtype.Timestamptz
	_, err := pgx.ForEachRow(rows, []any{&first.shard, &cohort, &delayed, &turn, &first.now}, func() error {
		first.Cohort, first.Delayed, first.Turn = cohort.Time, delayed.Time, turn.Time
		l.found(first)
		fn(first)
		return nil
	})
	if err != nil {
		return err
	}
	l.foundNothing()
	return nil
}

// firstBelow is like firstDue, for due times from $2 up to $3.
var firstBelow = cluster.WithEntries(`
		SELECT s.shard, c.due_at AS cohort, h.due_at AS delayed, t.due_at AS turn
		FROM unnest($1::smallint[]) AS s (shard)
		LEFT JOIN LATERAL (
			SELECT due_at FROM cohort WHERE cohort.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) c ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM delayed WHERE delayed.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) h ON true
		LEFT JOIN LATERAL (
			SELECT due_at FROM fair_turn WHERE fair_turn.shard = s.shard AND due_at >= $2 AND due_at < $3 ORDER BY due_at LIMIT 1
		) t ON true
		WHERE c.due_at IS NOT NULL OR h.due_at IS NOT NULL OR t.due_at IS NOT NULL`, "cohort_due", "delayed_due", "fair_turn_due")

// readBelow reads the rows of firstBelow, and how many index entries they took.
func readBelow(rows pgx.Rows) (below []ShardDue, entries int, err error) {
	var shard pgtype.Int2
	var cohort, delayed, turn pgtype.Timestamptz
	_, err = pgx.ForEachRow(rows, []any{&shard, &cohort, &delayed, &turn, &entries}, func() error {
		if shard.Valid {
			below = append(below, ShardDue{shard: shard.Int16, Cohort: cohort.Time, Delayed: delayed.Time, Turn: turn.Time})
		}
		return nil
	})
	return below, entries, err
}

// Overdue returns how long ago a due time was, or 0 if it is not past.
func (s *ShardDue) Overdue(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(0, s.now.Sub(at))
}
