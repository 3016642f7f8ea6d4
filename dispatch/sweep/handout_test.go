package sweep_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// dueOf returns so many due ticks of each schedule, one a second, the last a second before a moment.
func dueOf(h *dispatchtest.Carillon, last time.Time, times int) (due []cohorts.Due) {
	h.T.Helper()
	rows, _ := h.Pool.Query(h.T.Context(), `SELECT tenant_id, shard, cohort_id, id FROM schedule ORDER BY id DESC`) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (one cohorts.Due, err error) {
		err = row.Scan(&one.Tenant, &one.Shard, &one.Cohort, &one.Schedule)
		return one, err
	})
	if err != nil {
		h.T.Fatal(err)
	}
	for _, one := range found {
		for n := range times {
			one.Run = runs.Run{At: last.Add(time.Duration(n-times) * time.Second)}
			due = append(due, one)
		}
	}
	return due
}

// Due ticks of a change share chunks, and several ticks of one schedule are opened in their order.
func TestDueTicksOfAChangeShareChunks(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const size, times = 700, 2
	p := schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}, Policy: &policy.Policy{Overlap: "allow_all"}}
	h.Put("herd", "first", p)
	h.Herd("herd", "first", size-1)
	h.Exec(`UPDATE schedule SET overlap = 'allow_all'`)
	last := h.At(`SELECT date_trunc('second', clock_timestamp()) - interval '10 seconds'`)
	due := dueOf(h, last, times)
	err := pgx.BeginFunc(t.Context(), h.Config.Pool, func(tx pgx.Tx) error { return h.Dispatch.Chunker.HandOut(t.Context(), tx, due) })
	if err != nil {
		t.Fatal(err)
	}
	ids := h.Chunks()
	if jobs := h.Number(`SELECT count(*) FROM river_job`); len(ids) != 2*times || jobs > len(ids) {
		t.Errorf("%d ticks make %d chunks and %d jobs", len(due), len(ids), jobs)
	}
	for _, id := range ids {
		if err := h.Dispatch.Open(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE state = 1`); n != times*size {
		t.Errorf("%d ticks were handed out, want %d", n, times*size)
	}
	if n := h.Number(`SELECT count(*) FROM tick t JOIN tick b ON b.schedule_id = t.schedule_id AND b.nominal_at = t.last_at`); n != (times-1)*size {
		t.Errorf("%d ticks follow the one before them, want %d", n, (times-1)*size)
	}
}

// Of more due ticks than the tenant's rate those go out that it allows, and the others wait for their turn.
func TestDueTicksOfAChangeKeepToTheRateOfTheirTenant(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		q.TicksPerSecond = 1
		return q, nil
	}
	h.Dispatch = h.Process()
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const size, part = 100, 20
	h.Put("herd", "first", dispatchtest.Rarely("allow_all"))
	h.Herd("herd", "first", size-1)
	due := dueOf(h, h.At(`SELECT date_trunc('second', clock_timestamp())`), 1)
	if err := pgx.BeginFunc(t.Context(), h.Config.Pool, func(tx pgx.Tx) error { return h.Dispatch.Chunker.HandOut(t.Context(), tx, due) }); err != nil {
		t.Fatal(err)
	}
	h.OpenAll()
	const ready = `SELECT COALESCE(sum(ticks), 0) FROM ready`
	if n := h.Number(ready); n != part {
		t.Errorf("%d ticks can be leased at once, want %d", n, part)
	}
	if n := h.Number(`SELECT count(*) FROM delayed WHERE why = 'rate'`); n != size-part {
		t.Errorf("%d ticks wait, want %d", n, size-part)
	}
	if turns := h.Number(`SELECT count(DISTINCT due_at) FROM delayed`); turns != size/part-1 {
		t.Errorf("they wait for %d moments, want %d", turns, size/part-1)
	}
	if n := h.Number(`SELECT extract(epoch FROM max(due_at) - min(due_at))::int FROM delayed`); n != size-2*part {
		t.Errorf("the last waits %d s longer than the first, want %d", n, size-2*part)
	}
	h.Exec(`UPDATE delayed SET due_at = now()`)
	h.Start(h.Process())
	dispatchtest.Until(t, "all can be leased", func() bool { return h.Number(ready) == size })
}
