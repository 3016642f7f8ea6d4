package dispatch_test

import (
	"context"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// provokeRetention has a process make partitions, drop days that nobody keeps, one of which holds ticks that never ended, and thin a
// day that the house's tenant keeps no longer and another tenant does.
func (h *house) provokeRetention() {
	h.t.Helper()
	h.config.Quotas = func(_ context.Context, id tenants.ID) (tenants.Quotas, error) {
		q := tenants.Wide()
		if id == h.tenant {
			q.TickRetentionDays, q.AttemptRetentionDays = 7, 7
		}
		return q, nil
	}
	d := h.process()
	h.config.Quotas = quotas
	now := time.Now()
	for _, at := range []time.Time{now.AddDate(0, 0, -9), now.AddDate(-2, 0, 0)} {
		if err := d.EnsurePartitions(h.t.Context(), at); err != nil {
			h.t.Fatal(err)
		}
	}
	const day = `date_trunc('day', now(), 'UTC') - interval '9 days' + n * interval '1 second'`
	for _, sql := range []string{
		`INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, shard, attempt, state, reason, cause, dst)
			SELECT $1, 920000 + n, now() - interval '2 years', 0, 1, 0, now(), 0, 1, n % 2, 0, 0, 0 FROM generate_series(1, 4) n`,
		`INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
			SELECT CASE WHEN n % 2 = 0 THEN $1 ELSE 1001 END, 920000 + n, ` + day + `, 0, 1, 0, now(), now(), 0, 1, 2, 0, 0, 0 FROM generate_series(1, 600) n`,
		`INSERT INTO attempt (tenant_id, schedule_id, nominal_at, seq, attempt, ended_at, outcome)
			SELECT CASE WHEN n % 2 = 0 THEN $1 ELSE 1001 END, 920000 + n, ` + day + `, 0, 1, now(), 'failed' FROM generate_series(1, 600) n`,
		`INSERT INTO roll (tenant_id, nominal_at, workflow, ticks, items)
			SELECT CASE WHEN n % 2 = 0 THEN $1 ELSE 1001 END, ` + day + `, 'w', 1, '' FROM generate_series(1, 600) n`,
	} {
		h.exec(sql, h.tenant)
	}
	until(h.t, "the old days are dropped", func() bool { // a busy machine may take long for a lock that is free
		h.exec(`UPDATE partition_attempt SET next_at = now()`)
		if err := d.RetainDays(h.t.Context(), now); err != nil {
			h.t.Fatal(err)
		}
		return h.number(`SELECT count(*) FROM pg_class WHERE relname = 'tick_' || to_char(now() - interval '2 years', 'YYYYMMDD')`) == 0
	})
	for _, table := range []string{"tick", "attempt", "roll"} {
		gone := h.number(`SELECT 300 - count(*) FROM `+table+` WHERE tenant_id = $1 AND nominal_at < now() - interval '8 days'`, h.tenant)
		kept := h.number(`SELECT count(*) FROM ` + table + ` WHERE tenant_id = 1001 AND nominal_at < now() - interval '8 days'`)
		if gone != 300 || kept != 300 {
			h.t.Errorf("%d rows of %s are gone and %d are kept, want 300 each", gone, table, kept)
		}
	}
}

// provokeRarePushes makes schedules whose endpoint wants no more, and an event for an endpoint that is held.
func (h *house) provokeRarePushes() {
	h.t.Helper()
	h.catcher("leaver", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	h.put("leaver", "k", everySecond())
	h.catcher("quiet", 1, nil)
	h.exec(`UPDATE endpoint SET state = 'held' WHERE tenant_id = $1 AND name = 'quiet'`, h.tenant)
	h.exec(`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at) VALUES ($1, 'quiet', 'x', 'tick.failed', 'x', 1, now(), now(), now())`, h.tenant)
	p := delay("1s")
	p.Spec.MaxTicks = new(1)
	h.put("once", "last", p) // no tick comes after the one that is handed out
}

// provokeRareSweeps makes schedules that cannot be computed, that a newer program wrote, that are spread, and of a tenant that is
// stopped; and a chunk that holds a tick of a schedule that is gone.
func (h *house) provokeRareSweeps() {
	h.t.Helper()
	h.put("spread", "first", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"*/5 * * * * *"}, Jitter: "3s"}})
	h.herd("spread", "first", 20)
	h.put("newer", "k", everySecond())
	often := schedules.Params{Spec: offSpec("* * * * * *")}
	h.put("often", "k", often)
	counted := schedules.Params{Spec: offSpec("0 0 2 1 *")}
	counted.Spec.MaxTicks = new(3)
	h.put("off", "counted", counted)
	own := h.tenant
	h.tenant = h.quota("stopped", 10)
	h.put("stopped", "first", daily(8))
	h.herd("stopped", "first", 10)
	h.backdate(h.tenant)
	h.exec(`UPDATE tenant SET status = 'suspended' WHERE id = $1`, h.tenant)
	h.tenant = own
	for _, sql := range []string{
		`WITH n AS (UPDATE cohort_timing SET missed = 'newest' WHERE tenant_id = $1 AND workflow = 'newer')
			UPDATE cohort SET missed = 'newest' WHERE tenant_id = $1 AND workflow = 'newer'`,
		`INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, next_at, due_at) VALUES (5, 41000001, $1, 'w', decode(md5('broken'), 'hex'), 'skip', now(), now())`,
		`INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, id, timing) OVERRIDING SYSTEM VALUE VALUES ($1, 5, decode(md5('broken'), 'hex'), 'w', 'skip', 41000001, '{}')`,
		`INSERT INTO schedule (tenant_id, id, workflow, key, shard, status, spec, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by)
			OVERRIDING SYSTEM VALUE VALUES ($1, 41000001, 'w', 'broken', 5, 'active', '{"timezone":"UTC"}', now(), 41000001, '', now(), now(), 't')`,
		`INSERT INTO member (cohort_id, spread, schedule_id, tenant_id, from_at) VALUES (41000001, 0, 41000001, $1, now())`,
		`INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at)
			VALUES (6, $1, 0, 'small', now(), 5000, 5000, 1, '\x01010000018827', '{w}', now())`,
	} {
		h.exec(sql, own)
	}
}

// provokeBacklog has a process look at a hundred chunks that are not open, some of which are broken, and for one that it gave up.
func (h *house) provokeBacklog(d *process) {
	h.t.Helper()
	ctx := h.t.Context()
	h.exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at)
		SELECT 9, $1, 0, 'backlog', now() + interval '10 days', 1, 1, 1, CASE WHEN n <= 3 THEN '\x00ff' ELSE '\x010100000101' END::bytea, '{w}', now()
		FROM generate_series(1, 150) n`, h.tenant)
	first := int64(h.number(`SELECT min(id) FROM chunk WHERE lane = 'backlog'`))
	if err := d.OpenRun(ctx, first, first+2); err == nil {
		h.t.Error("broken chunks were opened")
	}
	if err := d.CountUnopened(ctx); err != nil {
		h.t.Error(err)
	}
	if _, err := d.Reach(ctx, first); err != nil {
		h.t.Error(err)
	}
	d.Doubt(first)
	if err := d.TakeOwned(ctx); err != nil {
		h.t.Error(err)
	}
	h.exec(`DELETE FROM chunk WHERE lane = 'backlog'`)
}
