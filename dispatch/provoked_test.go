package dispatch_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// provoke stores what a process finds to do besides upkeep: ticks of each overlap policy, limits, calendars, zones, a delay, a
// tenant and a key that are being erased. It returns a function to call once the process runs, which provokes the rest.
func provoke(h *dispatchtest.Carillon) (goOn func()) {
	h.T.Helper()
	release, releaseHeld := provokePushes(h), provokeHold(h)
	provokeRarePushes(h)
	h.Catcher("w", 1, nil)
	h.Put("w", "k", dispatchtest.Hourly("skip")) // it gets a backfill
	provokeSweeps(h)
	leaving := h.Quota("leaving", 100)
	for _, sql := range []string{
		`UPDATE tenant SET status = 'suspended', erasing_at = now() - interval '1 minute' WHERE id = $1`,
		`INSERT INTO schedule (tenant_id, id, workflow, key, shard, status, spec, anchor_at, tzdata, created_at, updated_at, updated_by)
			OVERRIDING SYSTEM VALUE SELECT $1, 30000000 + n, 'w', 'k' || n, 7, 'completed', '{"timezone":"UTC"}', now(), '', now(), now(), 't' FROM generate_series(1, 300) n`,
		`INSERT INTO schedule_state (tenant_id, schedule_id) SELECT $1, 30000000 + n FROM generate_series(1, 300) n`,
		`INSERT INTO cohort (shard, id, tenant_id, workflow, hash, missed, empty_at)
			SELECT 7, 30000000 + n, $1, 'w', decode(md5(n::text), 'hex'), 'skip', now() FROM generate_series(1, 300) n`,
		`INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, id, timing, ordered) OVERRIDING SYSTEM VALUE
			SELECT tenant_id, shard, hash, workflow, missed, id, '{}', false FROM cohort WHERE tenant_id = $1`,
		`INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at) SELECT $1, n, now(), 0, 1, 7, 'retry', 'infinity' FROM generate_series(1, 300) n`,
	} {
		h.Exec(sql, leaving)
	}
	for _, sql := range []string{
		`INSERT INTO erasure (tenant_id, subject_hash, subject, erased_by, began_at, schedule_ids) VALUES ($1, '\x00', 'gone', 't', now() - interval '1 hour', '{1}')`,
		`INSERT INTO operation (tenant_id, kind, state, started_by, params, look_at) VALUES ($1, 'x', 'pending', 't', '{}', now() - interval '1 minute')`,
		`INSERT INTO event (tenant_id, endpoint, id, event, cause, n, first_at, last_at, due_at, schedule_id)
			SELECT $1, 'listener', 'x' || n, 'tick.failed', n::text, 1, now(), now(), now(), 1 FROM generate_series(1, 300) n`,
	} {
		h.Exec(sql, h.Tenant)
	}
	return func() {
		h.Exec(`
			INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, swept_at, opened_at, owner)
			SELECT 8, $1, 0, 'small', now() - interval '1 minute', 1, 1, 1, '\x010100000101', '{w}', now() - interval '10 seconds', now() - interval '10 seconds', max(id)
			FROM process WHERE id < 900000`, h.Tenant) // its owner knows nothing of it
		for range 3 {
			for _, one := range h.Lease("a", 10) {
				h.End(one, "complete", false)
			}
		}
		from, to := dispatchtest.Hours(3)
		h.Backfill(from, to, "buffer_all")
		if _, _, err := h.Dispatch.Control.Trigger(h.T.Context(), h.Tenant, "parallel", "0", control.TriggerParams{In: "1s"}, once.Request{}); err != nil {
			h.T.Error(err)
		}
		h.Lease("few", 10)
		h.Exec(`UPDATE lease SET until_at = clock_timestamp() WHERE tenant_id = $1`, h.Tenant)
		dispatchtest.Until(h.T, "ticks are parked", func() bool {
			return h.Number(`SELECT count(*) FROM delayed WHERE tenant_id = $1 AND waits_for = 'parked'`, h.Tenant) > 0
		})
		h.Exec(`UPDATE endpoint SET state = 'enabled' WHERE tenant_id = $1 AND name = 'parked'`, h.Tenant)
		provokeExpired(h)
		release()
		releaseHeld()
		h.Exec(`UPDATE notice SET next_at = clock_timestamp() WHERE tenant_id = $1`, h.Tenant)
	}
}

// provokeExpired makes the ticks too late that wait for a slow one.
func provokeExpired(h *dispatchtest.Carillon) {
	h.T.Helper()
	waits := func(key, more string) func() bool {
		return func() bool {
			return h.Number(`
				SELECT count(*) FROM buffered b JOIN schedule s ON s.tenant_id = b.tenant_id AND s.id = b.schedule_id
				WHERE b.tenant_id = $1 AND s.workflow = 'slow' AND s.key = $2 AND `+more, h.Tenant, key) > 0
		}
	}
	dispatchtest.Until(h.T, "a tick waits for the one before", waits("buffer_one", "true"))
	h.Exec(`UPDATE schedule SET max_lateness_s = 1, on_expired = 'skip' WHERE tenant_id = $1 AND workflow = 'slow' AND key = 'buffer_all'`, h.Tenant)
	dispatchtest.Until(h.T, "a tick that waits is too late", waits("buffer_all", "nominal_at < clock_timestamp() - interval '2 seconds'"))
}

// provokeHold makes a schedule of each second whose workflow is held until release.
func provokeHold(h *dispatchtest.Carillon) (release func()) {
	h.T.Helper()
	h.Put("held", "k", dispatchtest.EverySecond())
	h.Exec(`UPDATE workflow SET held_at = now() WHERE tenant_id = $1 AND name = 'held'`, h.Tenant)
	return func() {
		h.T.Helper()
		dispatchtest.Until(h.T, "the cohort of a held workflow is set aside", func() bool {
			return h.Number(`SELECT count(*) FROM cohort WHERE tenant_id = $1 AND held`, h.Tenant) > 0
		})
		h.Exec(`UPDATE workflow SET held_at = NULL WHERE tenant_id = $1 AND name = 'held'`, h.Tenant)
	}
}

// provokePushes makes schedules of each second whose ticks are pushed: to an endpoint that fails now and then, one that is held,
// and one that answers only after release.
func provokePushes(h *dispatchtest.Carillon) (release func()) {
	h.T.Helper()
	h.Catcher("pushed", 1, func(n int, w http.ResponseWriter) {
		if n%2 == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h.Listener(tenants.TickFailed)
	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	p.Delivery = &policy.Delivery{MaxAttempts: new(1), Retention: &policy.Retention{Succeeded: "1h", Failed: "1h"}}
	h.Put("pushed", "dies", p)
	p.Delivery = nil
	h.Put("pushed", "retried", p)
	h.Catcher("delayed", 1, nil) // a tick that failed would wait longer and longer for its next attempt
	h.Put("delayed", "k", dispatchtest.Delay("1s"))
	p.Spec.MaxTicks = new(2)
	h.Put("pushed", "limited", p)
	p.Spec.MaxTicks = nil

	h.Catcher("paced", 1, nil)
	h.Exec(`UPDATE endpoint SET rate = 50 WHERE tenant_id = $1 AND name = 'paced'`, h.Tenant)
	h.Exec(`UPDATE workflow SET rate = 50, expect_handed_s = 1 WHERE tenant_id = $1 AND name = 'paced'`, h.Tenant)
	h.Put("paced", "k", p)
	h.Catcher("parked", 1, nil)
	h.Exec(`UPDATE endpoint SET state = 'held' WHERE tenant_id = $1 AND name = 'parked'`, h.Tenant)
	h.Put("parked", "k", p)

	slow := h.Catcher("slow", 1, nil)
	released := make(chan struct{})
	slow.Hang(func(int) { <-released })
	release = sync.OnceFunc(func() { close(released) })
	h.T.Cleanup(release)
	for _, overlap := range []string{"buffer_all", "buffer_one", "cancel_other"} {
		p.Policy = &policy.Policy{Overlap: overlap}
		h.Put("slow", overlap, p)
	}
	return release
}

// provokeSweeps makes schedules that wait for slots, that follow calendars and older zones, and that cannot be computed.
func provokeSweeps(h *dispatchtest.Carillon) {
	h.T.Helper()
	if err := h.Dispatch.Register(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	h.Limit("few", nil, new(int32(1)))
	h.Limit("parallel", new("pushed"), new(int32(1)))
	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	for i := range 3 {
		h.Put("parallel", fmt.Sprint(i), p)
	}
	own := h.Tenant
	h.Tenant = h.Quota("slow", 10)
	h.Put("slowly", "first", dispatchtest.Daily(8))
	h.Herd("slowly", "first", 100)
	h.Backdate(h.Tenant)
	h.Tenant = own
	for i := range 3 {
		p := dispatchtest.EverySecond()
		p.Policy = &policy.Policy{Overlap: "cancel_other"}
		h.Put("few", fmt.Sprint(i), p)
	}
	h.AdoptAfter2025b()
	h.Put("zoned", "k", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 8 * * *"}, Timezone: "America/Vancouver"}})
	h.PutCalendar()
	h.Put("off", "k", schedules.Params{Spec: dispatchtest.OffSpec("0 0 1 1 *")})
	provokeRareSweeps(h)
	h.PutCalendar("2030-01-02")
	for _, sql := range []string{
		`UPDATE cohort SET tzdata = '2025b' WHERE workflow = 'zoned' AND tenant_id = $1`,
		`UPDATE cohort SET retime_at = NULL, revision = 0 WHERE workflow = 'off' AND tenant_id = $1`,
		`UPDATE calendar_revision SET marked = 0 WHERE tenant_id = $1`,
		`UPDATE tenant SET created_at = created_at - interval '25 hours' WHERE id = $1`,
		`INSERT INTO process (name, place, pid, sweeps, dispatches, beat_at) SELECT 'gone', place, 2147483647, false, false, now() - interval '1 hour' FROM process WHERE place <> '' AND $1 > 0 LIMIT 1`,
		// Parked ticks of an endpoint that is gone, and of a tenant that goes on.
		`INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at, waits_for)
			SELECT $1, 910000 + n, now(), 0, 1, n % 64, 'endpoint', now() + interval '1 day', CASE WHEN n > 1 THEN 'gone' ELSE '' END FROM generate_series(1, 1200) n`,
	} {
		h.Exec(sql, h.Tenant)
	}
}

// notRun are functions of which TestWhatRunsUnaskedReadsNoMoreThanItsWork does not run every statement. One entry names a statement.
var notRun = []string{
	// They also serve requests, or only requests.
	"control.Control.cancelWaiting", "state.Withdraw", "control.Control.takeIdle", "lease.takeOneOf", "lease.TakeOneReady",
	"message.Messages.specTiming", "finish.LockTick", "cohorts.ReadProfiles", "tenants.QueueHappened",
	"upkeep.invariants", // the deep ones run in `carillon doctor` only
	// They end the erasure of a key, as the tenant, in the API's pool.
	"postgres.setTenant",
	"subjects.Erasures.eraseRecord", "subjects.eraseAnswers", "subjects.unfinished.erasePart", "schedules.LockRows", "subjects.unerased",
	// They end what a request ends.
	"finish.dropAnswers",
	"upkeep.partitioned", // options of tables
	// It looks for due cohorts of other tenants behind a full batch of one.
	"sweep.pass.others",
}

// readsMore names statements, by a part of their text, that may read more rows than the bound allows, and how many more.
var readsMore = map[string]int{
	"sum(octet_length(spec) + COALESCE(octet_length(payload), 0)) FROM schedule": 100_000, // it adds up all rows of a tenant, once a day
	"AND c.shard = (SELECT shard FROM chunk WHERE id = $1)":                      600,     // a late job looks at 512 numbers, and their chunks may be of other shards
	"ORDER BY id\n\t\t\tLIMIT $2)\n\t\t\tUNION ALL":                              1000,    // it reads so many unopened chunks to find those that have waited for long
	"AND id >= $2 ORDER BY id LIMIT $1":                                          1000,    // it counts the chunks that have waited for long among the first 1,000 unopened ones
	// It reads all due events to find the first of each tenant, also those of tenants that are being told.
	"SELECT DISTINCT ON (o.tenant_id) o.tenant_id, o.endpoint, o.id, o.due_at": 1000,
	// Erasing a tenant reads the chunks that are not done once, and the done ones in parts of the table: no index has them by tenant.
	"DELETE FROM chunk WHERE tenant_id = $1 AND ctid >= $2 AND ctid < $3":                                 100_000,
	"DELETE FROM chunk WHERE tenant_id = $1 AND shard < $2 AND opened_at IS NOT NULL AND done_at IS NULL": 100_000,
	// It reads the rows that wait to be folded: what all tenants appended within a second. No index has them by tenant.
	"DELETE FROM tally_delta WHERE tenant_id = $1": 10_000, "DELETE FROM inactive_delta WHERE tenant_id = $1": 10_000, "DELETE FROM daily_use_delta WHERE tenant_id = $1": 10_000,
	"OR EXISTS (SELECT FROM delayed h WHERE h.tenant_id = $1 AND h.shard = s.shard)": 10_000, // reads rows of the tenant, which are deleted next
	// It reads the endpoints of a tenant, of which the quota allows few.
	"FROM stored\n\t\t\t\tWHERE now AND EXISTS": 10_000, "WHERE told_at IS NOT NULL AND EXISTS": 10_000,
	// It may read the ticks of its schedules between the first and the last that end. Schedules of this test have a tick a second.
	"AND t.nominal_at BETWEEN $6 AND $7 AND t.schedule_id = ANY": 200,
}

// mayRead reports whether the bound, or readsMore, allows the number of rows that a statement read.
func (s *statement) mayRead() bool {
	sql := strings.Join(strings.Fields(s.SQL), " ")
	for part, more := range readsMore {
		if strings.Contains(sql, strings.Join(strings.Fields(part), " ")) && s.excess() <= more {
			return true
		}
	}
	return s.excess() <= 0
}
