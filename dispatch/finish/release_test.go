package finish_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/record"
)

// statements counts statements.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.n.Add(1) }

func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A tick ends in few statements, however many ticks behind it are too late. The first one that is not is released.
func TestManyLateTicksAreSkippedInFewStatements(t *testing.T) {
	t.Parallel()
	ran := &statements{}
	h := dispatchtest.NewOn(t, dispatchtest.TracedDatabase(t, ran))
	h.ReadyHerd("herd", 1)
	h.Exec(`UPDATE schedule SET overlap = 'buffer_all', max_lateness_s = 3600, on_expired = 'skip'`)
	id := h.Number(`SELECT id FROM schedule`)
	const late, timely = 950, 3
	h.Exec(`
		WITH made AS (
			INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, shard, attempt, state, reason, cause, dst)
			SELECT $1, $2, now() - CASE WHEN n <= $3 THEN interval '2 hours' ELSE interval '30 minutes' END + n * interval '1 s', 0, 1, 0, now(), 0, 1, $5, 0, 0, 0
			FROM generate_series(1, $3::int + $4::int) n
			RETURNING tenant_id, schedule_id, nominal_at, seq
		), waiting AS (
			INSERT INTO buffered (tenant_id, schedule_id, nominal_at, seq) SELECT tenant_id, schedule_id, nominal_at, seq FROM made
		)
		UPDATE schedule_state SET buffered = $3::int + $4::int WHERE tenant_id = $1 AND schedule_id = $2`, h.Tenant, id, late, timely, int16(record.Scheduled))
	one := h.Lease("herd", 1)[0]
	before := ran.n.Load()
	h.Finish(one)
	n := ran.n.Load() - before
	t.Logf("%d statements", n)
	if n > 200 {
		t.Error("the statements grow with the late ticks")
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM tick WHERE state = ` + number(record.Skipped) + ` AND reason = ` + number(record.Expired) + ` AND ended_at IS NOT NULL`: late,
		`SELECT count(*) FROM tick WHERE state = ` + number(record.Scheduled):                                                                         timely - 1,
		`SELECT count(*) FROM buffered`:       timely - 1,
		`SELECT buffered FROM schedule_state`: timely - 1,
		`SELECT skipped FROM schedule_state`:  late,
		`SELECT live FROM schedule_state`:     1,
		`SELECT count(*) FROM delayed WHERE why = 'released' AND nominal_at = (SELECT live_at FROM schedule_state)`: 1,
		`SELECT sum(skipped) FROM daily_use_delta`: late,
	} {
		if got := h.Number(sql); got != want {
			t.Errorf("got %d, want %d: %s", got, want, sql)
		}
	}
}

func number[N ~int16](n N) string { return strconv.Itoa(int(n)) }
