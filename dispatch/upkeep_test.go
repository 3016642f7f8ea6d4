package dispatch_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/schedules"
)

// recorder keeps the statements that a pool runs, each with the arguments of its last run.
type recorder struct {
	mu  sync.Mutex
	ran map[string][]any
}

func (r *recorder) keep(sql string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran[strings.TrimSpace(sql)] = args
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.keep(data.SQL, data.Args)
	return ctx
}
func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (r *recorder) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	r.keep(data.SQL, data.Args)
}
func (r *recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// What is looked for every while is looked for by ranges of indexes, so that it costs nothing where nothing is due, however
// much is stored: no row of those is compared with a clock that is read for each.
func TestKeepingHouseReadsNoMoreThanIsOver(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", schedules.Params{Spec: at(3600)})
	r := &recorder{ran: map[string][]any{}}
	config := h.config.Pool.Config()
	config.ConnConfig.Tracer = r
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traced.Close)
	h.config.Pool = traced
	d := h.process()
	look := d.Watchdog()
	for _, do := range []func(context.Context) error{
		d.KeepHouse, d.OpenStale, d.Notice,
		func(ctx context.Context) error { return look(ctx, time.Now()) },
		func(ctx context.Context) error { _, err := upkeep.Scan(ctx, traced, true); return err },
	} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	known := regexp.MustCompile(`^(SELECT|WITH|UPDATE|DELETE|INSERT)\b`)
	// Rows that are found by whose they are, of which there are few, and are compared as they are when their lock is had.
	few := regexp.MustCompile(`beat_at|pushing|\bat <|erasing_at|began_at|seen_at|opened_at`)
	asked := 0
	for _, sql := range slices.Sorted(maps.Keys(r.ran)) {
		if !known.MatchString(sql) || !strings.Contains(sql, "clock_timestamp()") {
			continue
		}
		asked++
		rows, _ := h.pool.Query(t.Context(), "EXPLAIN "+sql, r.ran[sql]...) // CollectRows reports the error
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%v:\n%s", err, sql)
		}
		for _, line := range plan {
			if strings.Contains(line, "Filter:") && strings.Contains(line, "clock_timestamp()") && !few.MatchString(line) {
				t.Errorf("a clock is read for each row:\n%s\n%s", line, sql)
			}
		}
	}
	if asked < 10 {
		t.Errorf("only %d statements ask the clock", asked)
	}
}
