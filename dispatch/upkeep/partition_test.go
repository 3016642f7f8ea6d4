package upkeep_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// lockCounter counts the statements that ask for a lock which readers or writers of the record conflict with.
type lockCounter struct{ n atomic.Int64 }

func (c *lockCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "ACCESS EXCLUSIVE MODE") {
		c.n.Add(1)
	}
	return ctx
}

func (c *lockCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// reading locks the record as a long query does, until the returned function is called.
func reading(h *dispatchtest.Carillon, table string) (end func()) {
	h.T.Helper()
	reader, err := h.Pool.Begin(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	if _, err := reader.Exec(h.T.Context(), `LOCK TABLE `+table+` IN ACCESS SHARE MODE`); err != nil {
		h.T.Fatal(err)
	}
	return func() {
		if err := reader.Rollback(h.T.Context()); err != nil {
			h.T.Fatal(err)
		}
	}
}

// writing inserts ticks until the returned function is called, which waits for some more inserts first. The test fails if an insert waits
// for a lock for 7 s: half of what any of our statements may wait, and far longer than a change of partitions may hold a lock.
func writing(h *dispatchtest.Carillon) (end func()) {
	h.T.Helper()
	ctx, cancel := context.WithCancel(h.T.Context())
	var done sync.WaitGroup
	var wrote atomic.Int64
	insert := func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '7s'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT count(*) FROM tick WHERE tenant_id = -1`); err != nil { // locks every partition
			return err
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, shard, attempt, state, reason, cause, dst)
			VALUES (-1, 1, now(), $1, 1, 0, now(), 0, 1, 0, 0, 0, 0)`, wrote.Load())
		return err
	}
	done.Go(func() {
		for ctx.Err() == nil {
			if err := pgx.BeginFunc(ctx, h.Pool, insert); err != nil && ctx.Err() == nil {
				h.T.Errorf("a writer: %v", err)
			}
			wrote.Add(1)
		}
	})
	return func() {
		before := wrote.Load()
		dispatchtest.Until(h.T, "the writer goes on", func() bool { return wrote.Load() > before+10 })
		cancel()
		done.Wait()
	}
}

func TestCreatingADayHoldsUpNobodyWhileTheRecordIsRead(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	now := time.Now().UTC()
	h.MakeDays(now)
	furthest := "tick_" + now.AddDate(0, 0, 7).Format("20060102")
	h.Exec(`DROP TABLE ` + furthest)

	locks := &lockCounter{}
	h.Traced(locks)
	end := reading(h, "tick")
	stop := writing(h)
	processes := []*dispatchtest.Process{h.Process(), h.Process(), h.Process(), h.Process()}
	dispatchtest.Until(t, "no attempt is held for too long", func() bool {
		h.Exec(`UPDATE partition_attempt SET next_at = '-infinity'`)
		locks.n.Store(0)
		var tries sync.WaitGroup
		var held atomic.Bool
		for _, d := range processes {
			tries.Go(func() {
				for range 5 {
					err := d.EnsurePartitions(t.Context(), now)
					if err != nil && !dispatchtest.HeldTooLong(err) {
						t.Error(err)
					}
					if err != nil {
						held.Store(true)
					}
				}
			})
		}
		tries.Wait()
		return !held.Load() || t.Failed()
	})
	stop()
	if n := locks.n.Load(); n != 1 {
		t.Errorf("the processes tried %d times, want once", n)
	}
	end()
	if err := h.Dispatch.EnsurePartitions(t.Context(), now); err != nil || partitions(h, "tick") != 9 {
		t.Errorf("%d partitions, want 9 before the pause is over; %v", partitions(h, "tick"), err)
	}
	dispatchtest.Until(t, "the tenth is created", func() bool { // a busy machine may take longer than 50 ms for a lock that is free
		h.Exec(`UPDATE partition_attempt SET next_at = now()`)
		if err := h.Dispatch.EnsurePartitions(t.Context(), now); err != nil && !dispatchtest.HeldTooLong(err) {
			t.Fatal(err)
		}
		return partitions(h, "tick") == 10
	})
}

// A session that uses the table, but not the default partition, is not in the way.
func TestADayIsCreatedBesideReadersOfOtherDays(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	now := time.Now().UTC()
	h.MakeDays(now)
	h.Exec(`DROP TABLE tick_` + now.AddDate(0, 0, 7).Format("20060102"))
	defer reading(h, "ONLY tick, tick_"+now.Format("20060102"))()
	h.MakeDays(now)
	if n := partitions(h, "tick"); n != 10 {
		t.Errorf("%d partitions, want 10", n)
	}
}

// A partition that is attached is as one that was created as a partition.
func TestACreatedDayIsLikeTheTable(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	now := time.Now().UTC()
	h.MakeDays(now)
	day := now.AddDate(0, 0, 3)
	for _, table := range []string{"tick", "attempt", "tick_time"} {
		h.Exec(fmt.Sprintf(`CREATE TABLE %s_direct PARTITION OF %[1]s FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')`, table))
		shape := func(name string) (s string) {
			err := h.Pool.QueryRow(t.Context(), `
				SELECT concat_ws(E'\n',
					(SELECT string_agg(concat_ws(' ', attname, atttypid::regtype, attnotnull, attidentity, attcollation, attstorage), ', ' ORDER BY attname) FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0),
					(SELECT string_agg(replace(pg_get_indexdef(indexrelid), $1::regclass::text, ''), E'\n' ORDER BY pg_get_indexdef(indexrelid)) FROM pg_index WHERE indrelid = $1::regclass),
					(SELECT string_agg(concat_ws(' ', inhparent::regclass), ', ' ORDER BY inhparent::regclass::text) FROM pg_inherits WHERE inhrelid IN (SELECT indexrelid FROM pg_index WHERE indrelid = $1::regclass)),
					(SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid = $1::regclass))`, name).Scan(&s)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		made, direct := shape(table+"_"+day.Format("20060102")), shape(table+"_direct")
		if made != direct {
			t.Errorf("%s: got\n%s\nwant\n%s", table, made, direct)
		}
	}
	var forced, secured bool
	err := h.Pool.QueryRow(t.Context(), `SELECT relforcerowsecurity, relrowsecurity FROM pg_class WHERE relname = $1`, "tick_"+day.Format("20060102")).Scan(&forced, &secured)
	if err != nil || !secured {
		t.Error(errors.Join(err, errors.New("the partition has no row security")))
	}
}
