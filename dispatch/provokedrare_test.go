package dispatch_test

import (
	"context"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// provokeRetention makes a process create partitions, drop days that no tenant keeps, and thin a day that only the other tenant still
// keeps. One of the dropped days holds ticks that never ended.
func provokeRetention(h *dispatchtest.Carillon) {
	h.T.Helper()
	h.Config.Quotas = func(_ context.Context, id tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		if id == h.Tenant {
			q.TickRetentionDays, q.AttemptRetentionDays = 7, 7
		}
		return q, nil
	}
	d := h.Process()
	h.Config.Quotas = dispatchtest.Quotas
	now := time.Now()
	for _, at := range []time.Time{now.AddDate(0, 0, -9), now.AddDate(-2, 0, 0)} {
		h.MakeDaysBy(d, at)
	}
	// A table with so few rows may be read whole, which is no more than a statement may read.
	const day = `date_trunc('day', now(), 'UTC') - interval '9 days' + n * interval '1 second'`
	for _, sql := range []string{
		`INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, shard, attempt, state, reason, cause, dst)
			SELECT $1, 920000 + n, now() - interval '2 years', 0, 1, 0, now(), 0, 1, n % 2, 0, 0, 0 FROM generate_series(1, 4) n`,
		`INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
			SELECT CASE WHEN n % 2 = 0 THEN $1 ELSE 1001 END, 920000 + n, ` + day + `, 0, 1, 0, now(), now(), 0, 1, 2, 0, 0, 0 FROM generate_series(1, 200) n`,
		`INSERT INTO attempt (tenant_id, schedule_id, nominal_at, seq, attempt, ended_at, outcome)
			SELECT CASE WHEN n % 2 = 0 THEN $1 ELSE 1001 END, 920000 + n, ` + day + `, 0, 1, now(), 'failed' FROM generate_series(1, 200) n`,
		`INSERT INTO tick_time (tenant_id, nominal_at, workflow, ticks, items)
			SELECT CASE WHEN n % 2 = 0 THEN $1 ELSE 1001 END, ` + day + `, 'w', 1, '' FROM generate_series(1, 200) n`,
	} {
		h.Exec(sql, h.Tenant)
	}
	dispatchtest.Until(h.T, "the old days are dropped", func() bool { // a busy machine may take long for a lock that is free
		h.Exec(`UPDATE partition_attempt SET next_at = now()`)
		if err := d.RetainDays(h.T.Context(), now); err != nil && !dispatchtest.HeldTooLong(err) {
			h.T.Fatal(err)
		}
		return h.Number(`SELECT count(*) FROM pg_class WHERE relname = 'tick_' || to_char(now() - interval '2 years', 'YYYYMMDD')`) == 0
	})
	for _, table := range []string{"tick", "attempt", "tick_time"} {
		gone := h.Number(`SELECT 100 - count(*) FROM `+table+` WHERE tenant_id = $1 AND nominal_at < now() - interval '8 days'`, h.Tenant)
		kept := h.Number(`SELECT count(*) FROM ` + table + ` WHERE tenant_id = 1001 AND nominal_at < now() - interval '8 days'`)
		if gone != 100 || kept != 100 {
			h.T.Errorf("%d rows of %s are gone and %d are kept, want 100 each", gone, table, kept)
		}
	}
}

// provokeRarePushes makes schedules whose endpoint answers 410, and an event for an endpoint that is held.
func provokeRarePushes(h *dispatchtest.Carillon) {
	h.T.Helper()
	h.Catcher("leaver", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	h.Put("leaver", "k", dispatchtest.EverySecond())
	h.Catcher("quiet", 1, nil)
	h.Exec(`UPDATE endpoint SET state = 'held' WHERE tenant_id = $1 AND name = 'quiet'`, h.Tenant)
	h.Exec(`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at) VALUES ($1, 'quiet', 'x', 'tick.failed', 'x', 1, now(), now(), now())`, h.Tenant)
	p := dispatchtest.Delay("1s")
	p.Spec.MaxTicks = new(1)
	h.Put("once", "last", p) // no tick comes after the one that is handed out
}

// provokeRareSweeps makes schedules that cannot be computed, that a newer program wrote, that are spread, and of a tenant that is
// stopped; and a chunk that holds a tick of a schedule that is gone.
func provokeRareSweeps(h *dispatchtest.Carillon) {
	h.T.Helper()
	h.Put("phase", "first", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"*/5 * * * * *"}, Jitter: "3s"}})
	h.Herd("phase", "first", 20)
	h.Put("newer", "k", dispatchtest.EverySecond())
	often := schedules.Params{Spec: dispatchtest.OffSpec("* * * * * *")}
	h.Put("often", "k", often)
	h.Put("w", "often", often) // its messages are sent with the calendar of their moment
	counted := schedules.Params{Spec: dispatchtest.OffSpec("0 0 2 1 *")}
	counted.Spec.MaxTicks = new(3)
	h.Put("off", "counted", counted)
	own := h.Tenant
	h.Tenant = h.Quota("stopped", 10)
	h.Put("stopped", "first", dispatchtest.Daily(8))
	h.Herd("stopped", "first", 10)
	h.Backdate(h.Tenant)
	h.Exec(`UPDATE tenant SET status = 'suspended' WHERE id = $1`, h.Tenant)
	h.Tenant = own
	for _, sql := range []string{
		`WITH n AS (UPDATE cohort_timing SET missed = 'newest' WHERE tenant_id = $1 AND workflow = 'newer')
			UPDATE cohort SET missed = 'newest' WHERE tenant_id = $1 AND workflow = 'newer'`,
		`INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, next_at, due_at) VALUES (5, 41000001, $1, 'w', decode(md5('broken'), 'hex'), 'skip', now(), now())`,
		`INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, id, timing) OVERRIDING SYSTEM VALUE VALUES ($1, 5, decode(md5('broken'), 'hex'), 'w', 'skip', 41000001, '{}')`,
		`INSERT INTO schedule (tenant_id, id, workflow, key, shard, status, spec, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by)
			OVERRIDING SYSTEM VALUE VALUES ($1, 41000001, 'w', 'broken', 5, 'active', '{"timezone":"UTC"}', now(), 41000001, '', now(), now(), 't')`,
		`INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at) VALUES (41000001, 0, 41000001, $1, now())`,
		`INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at)
			VALUES (6, $1, 0, 'small', now(), 5000, 5000, 1, '\x01010000018827', '{w}', now())`,
	} {
		h.Exec(sql, own)
	}
}

// provokeBacklog makes a process read 150 unopened chunks, some of them broken, and look for a chunk that it gave up.
func provokeBacklog(h *dispatchtest.Carillon, d *dispatchtest.Process) {
	h.T.Helper()
	ctx := h.T.Context()
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at)
		SELECT 9, $1, 0, 'backlog', now() + interval '10 days', 1, 1, 1, CASE WHEN n <= 3 THEN '\x00ff' ELSE '\x010100000101' END::bytea, '{w}', now()
		FROM generate_series(1, 150) n`, h.Tenant)
	first := int64(h.Number(`SELECT min(id) FROM chunk WHERE lane = 'backlog'`))
	if err := d.OpenRun(ctx, first, first+2); err == nil {
		h.T.Error("broken chunks were opened")
	}
	if err := d.CountUnopened(ctx); err != nil {
		h.T.Error(err)
	}
	if _, err := d.Reach(ctx, first); err != nil {
		h.T.Error(err)
	}
	d.Doubt(first)
	if err := d.TakeOwned(ctx); err != nil {
		h.T.Error(err)
	}
	h.Exec(`DELETE FROM chunk WHERE lane = 'backlog'`)
}
