package upkeep_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/tenants"
)

// inHalfAnHour is once a day in the hour of 8, and not within the next minutes in any zone that is whole hours from UTC.
func inHalfAnHour() string {
	return fmt.Sprintf("%d 8 * * *", time.Now().UTC().Add(30*time.Minute).Minute())
}

// Schedules that were timed by tzdata 2025b are retimed by the one in force, where it differs, and by it alone.
func TestANewerTZDataRetimesWhatItChanges(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	old := h.AdoptAfter2025b()
	cron := inHalfAnHour()
	zones := []string{"America/Vancouver", "America/Edmonton", "America/Winnipeg", "Africa/Casablanca", "America/New_York", "Europe/Berlin", "UTC"}
	specs := map[string]calendar.Spec{}
	for _, zone := range zones {
		specs[zone] = calendar.Spec{Cron: calendar.StringList{cron}, Timezone: zone}
		h.Put("w", zone, schedules.Params{Spec: specs[zone]})
	}
	before := map[string]time.Time{}
	for zone, spec := range specs {
		by := old
		if !old.Has(zone) { // the archive holds what differs
			by = nil
		}
		timing, err := calendar.Compile(spec, calendar.Context{Zones: by})
		if err != nil {
			t.Fatal(err)
		}
		tick, _ := timing.Next(time.Now())
		before[zone] = tick.At
		h.Exec(`
			UPDATE cohort c
			SET tzdata = '2025b', next_at = $1, due_at = $1
			FROM schedule s
			WHERE s.cohort_id = c.id AND s.key = $2`, tick.At, zone)
	}
	listens, secret := h.Listener(tenants.TZDataRetimed)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "it is retimed", func() bool {
		return h.Number(`SELECT count(*) FROM operation WHERE kind = 'tzdata' AND state = 'succeeded'`) > 0 &&
			h.Number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`) == 0
	})
	var result struct {
		Zones map[string]calendars.Rezoned
	}
	var text []byte
	if err := h.Pool.QueryRow(t.Context(), `SELECT result FROM operation WHERE kind = 'tzdata' ORDER BY id LIMIT 1`).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	want := map[string]calendars.Rezoned{}
	for zone, spec := range specs {
		timing, err := calendar.Compile(spec, calendar.Context{})
		if err != nil {
			t.Fatal(err)
		}
		tick, _ := timing.Next(time.Now())
		version := "2025b"
		if zone != "America/New_York" && zone != "Europe/Berlin" && zone != "UTC" {
			version = calendar.InForce().Version()
			want[zone] = calendars.Rezoned{Schedules: 1}
			if !tick.At.Equal(before[zone]) {
				want[zone] = calendars.Rezoned{Schedules: 1, Moved: 1}
			}
		}
		s, err := h.Schedules.Get(t.Context(), h.Tenant, "w", zone)
		if err != nil {
			t.Fatal(err)
		}
		if s.NextAt == nil || !s.NextAt.Equal(tick.At) || s.TZData != version {
			t.Errorf("%s: next is %v by %s, want %s by %s", zone, s.NextAt, s.TZData, tick.At, version)
		}
		if n := h.Number(`SELECT count(*) FROM cohort c JOIN schedule s ON s.cohort_id = c.id WHERE s.key = $1 AND c.next_at = $2 AND c.due_at = $2`, zone, tick.At); n != 1 {
			t.Errorf("%s: its cohort does not fire at %s", zone, tick.At)
		}
	}
	if diff := cmp.Diff(want, result.Zones); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
	dispatchtest.Until(t, "the tenant is told", func() bool { return len(listens.Requests()) > 0 })
	told := h.Told(listens, secret)[0]
	if err := json.Unmarshal(told.Data, &result); err != nil || told.Cause != calendar.InForce().Version() {
		t.Errorf("got %+v, %v", told, err)
	}
	if diff := cmp.Diff(want, result.Zones); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
}

// earlierCohorts stores cohorts that fire at 8 in a zone and were timed by tzdata 2025b, so many for each tenant whose name begins
// with a prefix.
func earlierCohorts(h *dispatchtest.Carillon, prefix, zone string, each int) {
	h.T.Helper()
	timing, err := calendar.Compile(calendar.Spec{Cron: calendar.StringList{"0 8 * * *"}, Timezone: zone}, calendar.Context{})
	if err != nil {
		h.T.Fatal(err)
	}
	h.Exec(`
		WITH n AS (
			INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, timing)
			SELECT t.id, n % 64, decode(md5(concat(t.id, ' ', n)), 'hex'), 'w', 'last', $2
			FROM tenant t
			CROSS JOIN generate_series(1, $3::int) n
			WHERE starts_with(t.name, $1)
			RETURNING id, shard, tenant_id, workflow, hash, missed
		)
		INSERT INTO cohort (id, shard, tenant_id, workflow, hash, missed, next_at, due_at, tzdata)
		SELECT id, shard, tenant_id, workflow, hash, missed, now() + interval '1 hour', now() + interval '1 hour', '2025b'
		FROM n`, prefix, string(timing.Canonical()), each)
}

func TestANewerTZDataComesToManyTenants(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.AdoptAfter2025b()
	const many = 4000
	h.Exec(`INSERT INTO tenant (name) SELECT concat('unchanged ', n) FROM generate_series(1, 3) n`)
	h.Exec(`INSERT INTO tenant (name) SELECT concat('changed ', n) FROM generate_series(1, $1::int) n`, many)
	earlierCohorts(h, "unchanged", "Europe/Berlin", 4000)
	earlierCohorts(h, "changed", "America/Vancouver", 1)
	h.Exec(`
		INSERT INTO operation (tenant_id, kind, started_by, params, look_at)
		SELECT id, 'other', 'ann', '{}', 'infinity' FROM tenant CROSS JOIN generate_series(1, 100) WHERE name = 'changed 7'`) // as many as a tenant may begin
	dispatchtest.Until(t, "all cohorts are compared", func() bool {
		if err := calendars.BeginRezoning(t.Context(), h.Config.Pool, h.Config.Timings, h.Config.Operations); err != nil {
			t.Fatal(err)
		}
		return h.Number(`SELECT begun FROM tzdata WHERE version = $1`, calendar.InForce().Version()) > 0
	})
	const concerned = `FROM operation o JOIN tenant t ON t.id = o.tenant_id WHERE o.kind = 'tzdata'`
	if n, rest := h.Number(`SELECT count(DISTINCT t.id) `+concerned+` AND starts_with(t.name, 'changed')`), h.Number(`SELECT count(*) `+concerned+` AND NOT starts_with(t.name, 'changed')`); n != many || rest != 0 {
		t.Errorf("operations of %d tenants have begun, and %d of others", n, rest)
	}
	if n := h.Number(`SELECT count(DISTINCT args ->> 'operation') FROM river_job WHERE kind = 'operate' AND state = 'available'`); n < many {
		t.Errorf("%d operations are queued", n)
	}

	ctx, operation := t.Context(), int64(h.Number(`SELECT min(o.id) `+concerned+` AND t.name = 'changed 7'`))
	tx, err := h.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	const jobsRead = `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'river_job'`
	var earlier, read int // the connection's, and so of its last transactions too
	if err := errors.Join(tx.QueryRow(ctx, jobsRead).Scan(&earlier), h.Jobs.QueueOperation(ctx, tx, operation), tx.QueryRow(ctx, jobsRead).Scan(&read)); err != nil {
		t.Fatal(err)
	}
	if read -= earlier; read > 100 {
		t.Errorf("%d jobs were read to see that the operation is queued", read)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM river_job WHERE (args ->> 'operation')::bigint = $1`, operation); n != 1 {
		t.Errorf("the operation is queued %d times", n)
	}
	if err := h.Config.Operations.Run(ctx, operation); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM operation WHERE id = $1 AND state = 'succeeded'`, operation); n != 1 {
		t.Error("the operation has not ended")
	}
	if n := h.Number(`SELECT count(*) FROM cohort c JOIN tenant t ON t.id = c.tenant_id WHERE t.name = 'changed 7' AND c.retime_at <= clock_timestamp()`); n != 1 {
		t.Error("the tenant's cohort is not marked")
	}
}
