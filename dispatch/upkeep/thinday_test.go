package upkeep_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/tenants"
)

// before calls do before each statement that begins with a text, with how many there were.
type before struct {
	text string
	do   func(n int64)
	ran  atomic.Int64
}

func (b *before) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(strings.TrimSpace(data.SQL), b.text) {
		b.do(b.ran.Add(1))
	}
	return ctx
}

func (b *before) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// keeping gives each tenant the retention of its ticks that a test says.
func keeping(h *dispatchtest.Carillon, days map[tenants.ID]int) {
	h.Config.Quotas = func(_ context.Context, id tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		n, ok := days[id]
		if !ok {
			return q, errors.New("the quotas cannot be read")
		}
		q.TickRetentionDays, q.AttemptRetentionDays = n, n
		return q, nil
	}
	h.Dispatch = h.Process()
}

// record inserts ended ticks of a day.
func record(h *dispatchtest.Carillon, tenant tenants.ID, day time.Time, ticks int) {
	h.T.Helper()
	h.Exec(`
		INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
		SELECT $1, n % 3 + 1, $3::timestamptz + n * interval '1 second', 0, 1, 0, now(), now(), 0, 1, 2, 0, 0, 0
		FROM generate_series(1, $2::int) AS g (n)`, tenant, ticks, day)
}

// withOther is a Carillon with a second tenant, and partitions around a day, which is today.
func withOther(t *testing.T) (h *dispatchtest.Carillon, other tenants.ID, today time.Time) {
	t.Helper()
	h = dispatchtest.New(t)
	two, err := tenants.Ensure(t.Context(), h.Pool, "other", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	today = time.Now().UTC().Truncate(24 * time.Hour)
	h.MakeDays(today)
	return h, two.ID, today
}

func TestTicksOfTheLongestRetentionAreNotDeletedSingly(t *testing.T) {
	t.Parallel()
	h, other, today := withOther(t)
	keeping(h, map[tenants.ID]int{h.Tenant: 30, other: 30})
	record(h, h.Tenant, today, 100)
	record(h, other, today, 100)
	h.Retain(today.Add(30*24*time.Hour + 12*time.Hour))
	if n := h.Number(`SELECT count(*) FROM tick`); n != 200 {
		t.Errorf("%d ticks are left, want 200", n)
	}
	h.Retain(today.Add(31*24*time.Hour + 12*time.Hour))
	if n := h.Number(`SELECT count(*) FROM tick`); n != 0 || partitions(h, "tick") != 8 {
		t.Errorf("%d ticks and %d partitions are left, want 0 and 8", n, partitions(h, "tick"))
	}
}

func TestThinningContinuesWhereItStopped(t *testing.T) {
	t.Parallel()
	h, other, today := withOther(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	batches := &before{text: "WITH batch AS (", do: func(n int64) {
		if n == 2 {
			cancel()
		}
	}}
	h.Traced(batches)
	keeping(h, map[tenants.ID]int{h.Tenant: 7, other: 30})
	record(h, h.Tenant, today, 12_000)
	record(h, other, today, 100)
	left := func(tenant tenants.ID) int { return h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1`, tenant) }
	now := today.Add(10 * 24 * time.Hour)
	if err := h.Dispatch.Retain(ctx, now); err == nil || left(h.Tenant) != 7000 {
		t.Fatalf("%d ticks are left, want 7000; %v", left(h.Tenant), err)
	}
	h.Retain(now)
	if n := batches.ran.Load(); n != 4 || left(h.Tenant) != 0 || left(other) != 100 {
		t.Errorf("after %d batches, want 4, %d ticks are left, and %d of the other tenant", n, left(h.Tenant), left(other))
	}
	h.Retain(now)
	if n := batches.ran.Load(); n != 4 {
		t.Errorf("a day that was thinned is thinned again")
	}
}

// A tick of the day that is delivered again, after its live ticks were cancelled, is cancelled too: nothing waits for it.
func TestATickThatIsReplayedWhileItsDayIsDroppedIsCancelled(t *testing.T) {
	t.Parallel()
	h, quota := dispatchtest.Aging(t)
	h.MakeDays(time.Now())
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("buffer_all"))
	h.EndTwo()
	failed := h.History("overlap", "k")[0]
	q := tenants.Wide()
	q.DeadLetterRetentionDays = 60
	quota.Store(new(q))
	replay := &before{text: "LOCK TABLE ONLY tick IN ACCESS EXCLUSIVE", do: func(n int64) {
		if n != 2 { // yesterday is first
			return
		}
		if _, _, err := h.Dispatch.Replays.Replay(t.Context(), h.Tenant, failed.TickID, once.Request{}); err != nil {
			t.Errorf("replay: %v", err)
		}
	}}
	h.Traced(replay)
	dispatchtest.Until(t, "the day is dropped", func() bool {
		h.Exec(`UPDATE partition_attempt SET next_at = now()`)
		if err := h.Process().Retain(t.Context(), time.Now().AddDate(0, 0, 32)); err != nil && !dispatchtest.HeldTooLong(err) {
			t.Fatal(err)
		}
		return h.Number(`SELECT count(*) FROM pg_class WHERE relname = $1`, "tick_"+failed.Timestamp.UTC().Format("20060102")) == 0
	})
	if replay.ran.Load() == 0 {
		t.Fatal("nothing was replayed")
	}
	dispatchtest.Until(t, "nothing of the schedule is under way", func() bool {
		return h.Number(`SELECT sum(live + buffered + aside + aside_buffered) FROM schedule_state`) == 0
	})
}

func TestATenantWhoseQuotasCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	h, other, today := withOther(t)
	third, err := tenants.Ensure(t.Context(), h.Pool, "third", tenants.Wide())
	if err != nil {
		t.Fatal(err)
	}
	keeping(h, map[tenants.ID]int{h.Tenant: 7, third.ID: 30})
	record(h, h.Tenant, today, 10)
	record(h, other, today, 10)
	h.Retain(today.Add(40 * 24 * time.Hour))
	if n := h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1`, h.Tenant); n != 0 {
		t.Errorf("%d ticks are left", n)
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE tenant_id = $1`, other); n != 10 {
		t.Errorf("%d ticks are left of 10 of the tenant with unknown quotas", n)
	}
}

// What lists the ticks of a day goes with the ticks.
func TestADayIsThinnedInEachTable(t *testing.T) {
	t.Parallel()
	h, other, today := withOther(t)
	keeping(h, map[tenants.ID]int{h.Tenant: 7, other: 30})
	for _, tenant := range []tenants.ID{h.Tenant, other} {
		record(h, tenant, today, 10)
		h.Exec(`INSERT INTO attempt (tenant_id, schedule_id, nominal_at, seq, attempt, ended_at, outcome) SELECT tenant_id, schedule_id, nominal_at, seq, 0, now(), 'failed' FROM tick WHERE tenant_id = $1`, tenant)
		h.Exec(`INSERT INTO tick_time (id, tenant_id, nominal_at, workflow, ticks, items) OVERRIDING SYSTEM VALUE SELECT 1000 * tenant_id + row_number() OVER (), tenant_id, nominal_at, 'w', 1, '' FROM tick WHERE tenant_id = $1`, tenant)
	}
	h.Retain(today.Add(10 * 24 * time.Hour))
	for _, table := range []string{"tick", "attempt", "tick_time"} {
		left, kept := h.Number(`SELECT count(*) FROM `+table+` WHERE tenant_id = $1`, h.Tenant), h.Number(`SELECT count(*) FROM `+table+` WHERE tenant_id = $1`, other)
		if left != 0 || kept != 10 {
			t.Errorf("%d rows of %s are left, and %d of the other tenant's 10", left, table, kept)
		}
	}
}
