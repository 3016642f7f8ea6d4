package dispatch_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
)

// Due ticks of a change share chunks, and several ticks of one schedule are opened in their order.
func TestDueTicksOfAChangeShareChunks(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const size, times = 700, 2
	p := schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}, Policy: &schedules.Policy{Overlap: "allow_all"}}
	h.put("herd", "first", p)
	h.herd("herd", "first", size-1)
	h.exec(`UPDATE schedule SET overlap = 'allow_all'`)
	last := h.at(`SELECT date_trunc('second', clock_timestamp()) - interval '10 seconds'`)
	rows, _ := h.pool.Query(t.Context(), `SELECT tenant_id, shard, cohort_id, id FROM schedule ORDER BY id DESC`) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (one schedules.Due, err error) {
		err = row.Scan(&one.Tenant, &one.Shard, &one.Cohort, &one.Schedule)
		return one, err
	})
	if err != nil {
		t.Fatal(err)
	}
	var due []schedules.Due
	for _, one := range found {
		for n := range times {
			one.Run = schedules.Run{At: last.Add(time.Duration(n-times) * time.Second)}
			due = append(due, one)
		}
	}
	err = pgx.BeginFunc(t.Context(), h.config.Pool, func(tx pgx.Tx) error { return h.dispatch.HandOut(t.Context(), tx, due) })
	if err != nil {
		t.Fatal(err)
	}
	ids := h.chunks()
	if jobs := h.number(`SELECT count(*) FROM river_job`); len(ids) != 2*times || jobs > len(ids) {
		t.Errorf("%d ticks make %d chunks and %d jobs", len(due), len(ids), jobs)
	}
	for _, id := range ids {
		if err := h.dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.number(`SELECT count(*) FROM tick WHERE state = 1`); n != times*size {
		t.Errorf("%d ticks were handed out, want %d", n, times*size)
	}
	if n := h.number(`SELECT count(*) FROM tick t JOIN tick b ON b.schedule_id = t.schedule_id AND b.nominal_at = t.last_at`); n != (times-1)*size {
		t.Errorf("%d ticks follow the one before them, want %d", n, (times-1)*size)
	}
}
