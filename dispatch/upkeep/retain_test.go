package upkeep_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func partitions(h *dispatchtest.Carillon, table string) int {
	h.T.Helper()
	return h.Number(`SELECT count(*) FROM pg_inherits WHERE inhparent = $1::regclass`, table)
}

func TestDaysThatNobodyKeepsAreDropped(t *testing.T) {
	t.Parallel()
	h, quota := dispatchtest.Aging(t)
	now := time.Now()
	h.Start(h.Dispatch)
	if h.DaysFailed() {
		h.MakeDays(now)
	}
	for _, table := range []string{"tick", "attempt", "tick_time"} {
		if n := partitions(h, table); n != 10 {
			t.Fatalf("%d partitions of %s", n, table)
		}
	}
	h.Put("overlap", "k", dispatchtest.Rarely("buffer_all"))
	h.EndTwo()
	h.Trigger() // runs still
	h.Trigger() // waits for it
	id := h.History("overlap", "k")[0].TickID
	q := tenants.Wide()
	q.DeadLetterRetentionDays = 60
	quota.Store(new(q))
	h.Retain(now.AddDate(0, 0, 20))
	if n := h.Number(`SELECT count(*) FROM tick`); n != 4 || h.Number(`SELECT count(*) FROM attempt`) != 0 {
		t.Errorf("after 20 days %d ticks are left", n)
	}
	h.Retain(now.AddDate(0, 0, 32))
	if n := h.Number(`SELECT count(*) FROM tick`); n != 0 {
		t.Errorf("after 32 days %d ticks are left", n)
	}
	h.Idle() // what never ended was cancelled, and nothing waits for it
	if got, err := h.Dispatch.Reader.Tick(t.Context(), h.Tenant, id); err != nil || got.State != "failed" {
		t.Errorf("the dead letter outlives its day: got %+v, %v", got, err)
	}
	q = tenants.Wide()
	q.DeadLetterRetentionDays = 1
	quota.Store(new(q))
	h.Retain(now.AddDate(0, 0, 2))
	if n := h.Number(`SELECT count(*) FROM dead_letter`); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

// The audit of the platform is kept for two years, whether there are tenants or not.
func TestTheAuditOfThePlatformIsKeptForTwoYears(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Exec(`
		INSERT INTO platform_audit (at, actor, action, target, request)
		SELECT now() - make_interval(days => age), 'ops', 'tenant.put', 'platform/tenants/' || age, 'r' FROM unnest('{1, 731, 733, 1000}'::int[]) AS age`)
	h.Retain(time.Now())
	if n := h.Number(`SELECT count(*) FROM platform_audit`); n != 2 {
		t.Errorf("%d entries are left, and not 2", n)
	}
}

// Dropping a day does not wait for a partition that is being read, and does not delay writers.
func TestDroppingADayHoldsUpNobody(t *testing.T) {
	t.Parallel()
	h, _ := dispatchtest.Aging(t)
	h.MakeDays(time.Now()) // no process is started: it would drop the day too
	h.Put("overlap", "k", dispatchtest.Rarely("allow_all"))
	old := time.Now().UTC().AddDate(0, 0, -40)
	day := old.Truncate(24 * time.Hour)
	h.Exec(fmt.Sprintf(`CREATE TABLE tick_%s PARTITION OF tick FOR VALUES FROM ('%s') TO ('%s')`, day.Format("20060102"), day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
	h.Exec(fmt.Sprintf(`ALTER TABLE tick_%s OWNER TO carillon_engine`, day.Format("20060102")))
	reader, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), `SELECT count(*) FROM tick`); err != nil {
		t.Fatal(err)
	}
	before := partitions(h, "tick")
	h.RetainOnce(time.Now())
	h.Trigger()
	if n := partitions(h, "tick"); n != before {
		t.Errorf("%d partitions, want %d while they are read", n, before)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.RetainOnce(time.Now())
	if n := partitions(h, "tick"); n != before {
		t.Errorf("%d partitions, want %d before the pause is over", n, before)
	}
	dispatchtest.Until(t, "it is dropped", func() bool {
		h.Exec(`UPDATE partition_attempt SET next_at = now()`)
		h.RetainOnce(time.Now())
		return partitions(h, "tick") == before-1
	})
}

func TestWhatATenantKeepsNoLongerIsHiddenAtOnceAndDeleted(t *testing.T) {
	t.Parallel()
	h, quota := dispatchtest.Aging(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("allow_all"))
	h.EndTwo()
	h.Exec(`UPDATE tick SET ended_at = ended_at - interval '3 days', fired_at = fired_at - interval '3 days', nominal_at = nominal_at - interval '3 days'`)
	h.Exec(`UPDATE tick_time SET nominal_at = nominal_at - interval '3 days'`)
	h.Exec(`UPDATE attempt SET nominal_at = nominal_at - interval '3 days', ended_at = ended_at - interval '3 days'`)
	h.EndTwo()
	seen := func() (here, there int) {
		all := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/ticks", "").Items
		return len(h.History("overlap", "k")), len(all)
	}
	if a, b := seen(); a != 4 || b != 4 {
		t.Fatalf("%d and %d are seen", a, b)
	}
	q := tenants.Wide()
	q.TickRetentionDays = 2
	quota.Store(&q)
	if a, b := seen(); a != 2 || b != 2 {
		t.Errorf("%d and %d are seen of 2", a, b)
	}
	// Another tenant keeps longer, so that no partition goes.
	h.Retain(time.Now())
	for _, table := range []string{"tick", "tick_time"} {
		if n := h.Number(`SELECT count(*) FROM ` + table + ` WHERE nominal_at < now() - interval '1 day'`); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
	if a, b := seen(); a != 2 || b != 2 {
		t.Errorf("%d and %d are seen of 2", a, b)
	}
}

func TestRetentionOfAScheduleAndOfAWorkflow(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own=%t", own), func(t *testing.T) {
			t.Parallel()
			h, _ := dispatchtest.Aging(t)
			h.Start(h.Dispatch)
			kept := &policy.Delivery{Retention: &policy.Retention{Succeeded: "2h", Failed: "5h"}}
			p := dispatchtest.Rarely("allow_all")
			if own {
				p.Delivery = kept
			} else if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, "overlap", schedules.WorkflowParams{Defaults: &policy.Defaults{Delivery: kept}}); err != nil {
				t.Fatal(err)
			}
			h.Put("overlap", "k", p)
			h.EndTwo()
			h.WantStates("failed", "succeeded")
			h.Exec(`UPDATE tick SET nominal_at = nominal_at - interval '3 hours', ended_at = ended_at - interval '3 hours'`)
			h.WantStates("failed")
			h.Retain(time.Now())
			if n := h.Number(`SELECT count(*) FROM tick`); n != 1 {
				t.Errorf("%d ticks are left", n)
			}
			h.Exec(`UPDATE tick SET nominal_at = nominal_at - interval '150 minutes', ended_at = ended_at - interval '150 minutes'`)
			h.WantStates()
			h.Retain(time.Now())
			if n := h.Number(`SELECT count(*) FROM tick`); n != 0 {
				t.Errorf("%d ticks are left", n)
			}
		})
	}
}

func TestVersionsAreKeptWhileADeadLetterNamesThem(t *testing.T) {
	t.Parallel()
	h, quota := dispatchtest.Aging(t)
	h.Unmended()
	h.Start(h.Dispatch)
	h.Put("overlap", "k", dispatchtest.Rarely("allow_all"))
	h.EndTwo()
	for _, payload := range []string{`1`, `2`, `3`} {
		p := dispatchtest.Rarely("allow_all")
		p.Payload = web.Raw(payload)
		h.Put("overlap", "k", p)
	}
	h.Exec(`UPDATE revision SET ended_at = ended_at - interval '50 days'`)
	h.Retain(time.Now())
	if n := h.Number(`SELECT count(*) FROM revision`); n != 3 {
		t.Errorf("%d versions are left of 3", n)
	}
	q := tenants.Wide()
	q.AuditRetentionDays = 1
	quota.Store(&q)
	h.Retain(time.Now())
	if n := h.Number(`SELECT count(*) FROM revision WHERE version = 1`); n != 1 || h.Number(`SELECT count(*) FROM revision`) != 1 {
		t.Errorf("the version that the dead letter names is not the one left")
	}
	h.WantBytesCounted()
}

func TestDaysAreMadeOfWhatCameBefore(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("overlap", "k", dispatchtest.Rarely("allow_all"))
	h.Trigger() // before anybody made the day's partition
	if n := h.Number(`SELECT count(*) FROM tick_default`); n != 1 {
		t.Fatalf("%d ticks in the default partition", n)
	}
	h.Start(h.Dispatch)
	if h.DaysFailed() {
		h.MakeDays(time.Now())
	}
	if n := h.Number(`SELECT count(*) FROM tick_default`); n != 0 || h.Number(`SELECT count(*) FROM tick`) != 1 {
		t.Errorf("%d ticks in the default partition", n)
	}
	h.Finish(h.Lease("overlap", 1)[0])
	h.WantStates("succeeded")
}

// A version that ended longer ago than ticks are kept keeps its payload only while a tick under way names it.
func TestPayloadsOfVersionsAreDropped(t *testing.T) {
	t.Parallel()
	h, quota := dispatchtest.Aging(t)
	h.Unmended()
	h.Start(h.Dispatch)
	put := func(payload string) {
		p := dispatchtest.Rarely("allow_all")
		p.Payload = web.Raw(payload)
		h.Put("overlap", "k", p)
	}
	put(`1`)
	h.Trigger()
	one := h.Lease("overlap", 1)[0]
	put(`2`)
	put(`3`)
	q := tenants.Wide()
	q.TickRetentionDays = 0
	quota.Store(&q)
	kept := func() string {
		t.Helper()
		page, _, err := h.Schedules.Revisions(t.Context(), h.Tenant, "overlap", "k", 10, "")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, r := range page {
			all = append(all, fmt.Sprintf("%d=%s dropped:%t", r.Version, r.Payload, r.PayloadKept != nil && !*r.PayloadKept))
		}
		return strings.Join(all, ", ")
	}
	h.Retain(time.Now())
	if got, want := kept(), "3=3 dropped:false, 2= dropped:true, 1=1 dropped:false"; got != want {
		t.Errorf("while a tick runs: got %s, want %s", got, want)
	}
	h.Finish(one)
	h.Retain(time.Now())
	if got, want := kept(), "3=3 dropped:false, 2= dropped:true, 1= dropped:true"; got != want {
		t.Errorf("once it has ended: got %s, want %s", got, want)
	}
	h.WantBytesCounted()
}

// Retention of a schedule reads its ticks that it keeps no longer once a day, and otherwise those that have come past it since.
func TestRetentionOfAScheduleReadsOldTicksOnceADay(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	p := dispatchtest.Rarely("skip")
	p.Delivery = &policy.Delivery{Retention: &policy.Retention{Succeeded: "1d", Failed: "1d"}}
	h.Put("w", "k", p)
	d, r := h.Recording()
	now := time.Now()
	for _, at := range []time.Time{now.AddDate(0, 0, -1), now.AddDate(0, 0, -2), now.AddDate(0, 0, -3)} {
		h.MakeDays(at)
	}
	tick := func(state, number int, ago string) { // the tenant keeps skipped ticks
		t.Helper()
		h.Exec(`
			INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
			SELECT $1, s.id, a.at, 0, 1, 0, a.at, a.at, 0, 1, $2::int, 0, 0, 0
			FROM schedule s, generate_series(1, $3::int) n CROSS JOIN LATERAL (SELECT now() - $4::interval - n * interval '1 second' AS at) a
			WHERE s.tenant_id = $1`, h.Tenant, state, number, ago)
	}
	const skipped, word = 5, "AND nominal_at >= i.from_at"
	left := func() int { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) }
	retain := func(at time.Time) {
		t.Helper()
		if err := d.Retain(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	tick(skipped, 3000, "50 hours")
	tick(2, 10, "49 hours")
	retain(now)
	for sql, n := range h.Entries(r, word) {
		if n < 3000 || left() != 0 {
			t.Errorf("the first walk reads %d index entries, and leaves %d ticks:\n%s", n, left(), sql)
		}
	}
	tick(2, 10, "24 hours")
	tick(2, 10, "49 hours") // as if they had ended late
	retain(now.Add(10 * time.Minute))
	for sql, n := range h.Entries(r, word) {
		if n > 200 || left() != 10 {
			t.Errorf("the next walk reads %d index entries, and leaves %d ticks:\n%s", n, left(), sql)
		}
	}
	retain(now.Add(25 * time.Hour))
	if left() != 0 {
		t.Errorf("after a day %d ticks are left", left())
	}
}
