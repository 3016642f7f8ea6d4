package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	floorStored = 1_000_000
	floorBatch  = 2_000
	floorRows   = 200_000 // in one measurement
)

// perRow measures the floor: a scheduler with one row for each schedule and one job for each firing. It selects due rows with FOR UPDATE
// SKIP LOCKED, updates their indexed next times, copies a job for each into a table like River's, and commits, on one connection.
type perRow struct {
	db *pgx.Conn
}

// newFloor stores n rows in a schema of its own.
func newFloor(ctx context.Context, url string, n int) (*perRow, error) {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	f := &perRow{db}
	for _, statement := range []string{
		`CREATE SCHEMA floor`,
		`CREATE TABLE floor.timer (id bigint PRIMARY KEY, next_at timestamptz NOT NULL, every interval NOT NULL DEFAULT '1 day') WITH (fillfactor = 80)`,
		`CREATE INDEX timer_next ON floor.timer (next_at)`,
		`CREATE TABLE floor.job (LIKE river_job INCLUDING ALL)`, // its GIN indexes are dropped already
		fmt.Sprintf(`INSERT INTO floor.timer (id, next_at) SELECT n, now() - interval '1 hour' + n * interval '1 millisecond' FROM generate_series(1, %d) n`, n),
		`VACUUM (ANALYZE) floor.timer`,
	} {
		if _, err := db.Exec(ctx, statement); err != nil {
			f.close(ctx)
			return nil, err
		}
	}
	return f, nil
}

func (f *perRow) close(ctx context.Context) { _ = f.db.Close(context.WithoutCancel(ctx)) } // the database is dropped with its rows

// measure fires n rows and returns their rate a second. It first removes what an earlier run left behind.
func (f *perRow) measure(ctx context.Context, n int) (perSecond float64, err error) {
	if _, err := f.db.Exec(ctx, `TRUNCATE floor.job`); err != nil {
		return 0, err
	}
	began, done := time.Now(), 0
	for done < n {
		fired, err := f.batch(ctx)
		if err != nil {
			return 0, err
		}
		done += fired
	}
	return float64(done) / time.Since(began).Seconds(), nil
}

func (f *perRow) batch(ctx context.Context) (n int, err error) {
	err = pgx.BeginFunc(ctx, f.db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT id, next_at
			FROM floor.timer
			WHERE next_at <= now() + interval '100 years'
			ORDER BY next_at
			LIMIT $1
			FOR UPDATE SKIP LOCKED`, floorBatch)
		if err != nil {
			return err
		}
		var ids []int64
		var next []time.Time
		var id int64
		var at time.Time
		if _, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
			ids, next = append(ids, id), append(next, at.Add(24*time.Hour))
			return nil
		}); err != nil {
			return err
		}
		n = len(ids)
		if _, err := tx.Exec(ctx, `
			UPDATE floor.timer t
			SET next_at = n.next_at
			FROM unnest($1::bigint[], $2::timestamptz[]) AS n (id, next_at)
			WHERE t.id = n.id`, ids, next); err != nil {
			return err
		}
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"floor", "job"}, []string{"args", "kind", "max_attempts", "queue", "scheduled_at", "state"},
			pgx.CopyFromSlice(n, func(i int) ([]any, error) {
				return []any{fmt.Appendf(nil, `{"schedule": %d}`, ids[i]), "fire", int16(25), "default", next[i], "available"}, nil
			}))
		return err
	})
	return n, err
}

// floor measures the per-row floor alone.
func floor(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	b, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer b.close()
	n := o.scaled(floorStored)
	f, err := newFloor(ctx, b.url, n)
	if err != nil {
		return nil, err
	}
	defer f.close(ctx)
	p.say("%d rows stored", n)
	before, err := costUntilNow(ctx, b.db, 1)
	if err != nil {
		return nil, err
	}
	perSecond, err := f.measure(ctx, n)
	if err != nil {
		return nil, err
	}
	after, err := costUntilNow(ctx, b.db, 1)
	if err != nil {
		return nil, err
	}
	r := &report{}
	r.figure("stored", float64(n))
	r.figure("rows_per_second", perSecond)
	r.figure("postgres_us_a_row", micros(after.less(before).postgres, n))
	r.figure("wal_bytes_a_row", float64(after.less(before).wal)/float64(n))
	return r, nil
}
