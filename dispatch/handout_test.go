package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// dueOf returns so many due ticks of each schedule, one a second, the last a second before a moment.
func (h *house) dueOf(last time.Time, times int) (due []schedules.Due) {
	h.t.Helper()
	rows, _ := h.pool.Query(h.t.Context(), `SELECT tenant_id, shard, cohort_id, id FROM schedule ORDER BY id DESC`) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (one schedules.Due, err error) {
		err = row.Scan(&one.Tenant, &one.Shard, &one.Cohort, &one.Schedule)
		return one, err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, one := range found {
		for n := range times {
			one.Run = cohorts.Run{At: last.Add(time.Duration(n-times) * time.Second)}
			due = append(due, one)
		}
	}
	return due
}

// Due ticks of a change share chunks, and several ticks of one schedule are opened in their order.
func TestDueTicksOfAChangeShareChunks(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const size, times = 700, 2
	p := schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}, Policy: &policy.Policy{Overlap: "allow_all"}}
	h.put("herd", "first", p)
	h.herd("herd", "first", size-1)
	h.exec(`UPDATE schedule SET overlap = 'allow_all'`)
	last := h.at(`SELECT date_trunc('second', clock_timestamp()) - interval '10 seconds'`)
	due := h.dueOf(last, times)
	err := pgx.BeginFunc(t.Context(), h.config.Pool, func(tx pgx.Tx) error { return h.dispatch.Chunker.HandOut(t.Context(), tx, due) })
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

// Of more due ticks than the tenant's rate those go out that it allows, and the others wait for their turn.
func TestDueTicksOfAChangeKeepToTheRateOfTheirTenant(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.TicksPerSecond = 1
		return q, nil
	}
	h.dispatch = h.process()
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const size, part = 100, 20
	h.put("herd", "first", rarely("allow_all"))
	h.herd("herd", "first", size-1)
	due := h.dueOf(h.at(`SELECT date_trunc('second', clock_timestamp())`), 1)
	if err := pgx.BeginFunc(t.Context(), h.config.Pool, func(tx pgx.Tx) error { return h.dispatch.Chunker.HandOut(t.Context(), tx, due) }); err != nil {
		t.Fatal(err)
	}
	h.openAll()
	const ready = `SELECT COALESCE(sum(ticks), 0) FROM ready`
	if n := h.number(ready); n != part {
		t.Errorf("%d ticks can be leased at once, want %d", n, part)
	}
	if n := h.number(`SELECT count(*) FROM held WHERE why = 'rate'`); n != size-part {
		t.Errorf("%d ticks wait, want %d", n, size-part)
	}
	if turns := h.number(`SELECT count(DISTINCT due_at) FROM held`); turns != size/part-1 {
		t.Errorf("they wait for %d moments, want %d", turns, size/part-1)
	}
	if n := h.number(`SELECT extract(epoch FROM max(due_at) - min(due_at))::int FROM held`); n != size-2*part {
		t.Errorf("the last waits %d s longer than the first, want %d", n, size-2*part)
	}
	h.exec(`UPDATE held SET due_at = now()`)
	h.start(h.process())
	until(t, "all can be leased", func() bool { return h.number(ready) == size })
}
