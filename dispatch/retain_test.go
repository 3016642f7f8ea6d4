package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// aging is a house whose tenants' quotas a test sets, with one schedule that has a tick of each kind.
func aging(t *testing.T) (h *house, quota *atomic.Pointer[tenants.Quotas]) {
	t.Helper()
	h = newHouse(t)
	quota = &atomic.Pointer[tenants.Quotas]{}
	quota.Store(new(tenants.Wide()))
	h.config.Quotas = func(context.Context, tenants.ID) (tenants.Quotas, error) { return *quota.Load(), nil }
	h.dispatch = h.process()
	return h, quota
}

func (h *house) retain(now time.Time) {
	h.t.Helper()
	if err := h.dispatch.Retain(h.t.Context(), now); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) partitions(table string) int {
	h.t.Helper()
	return h.number(`SELECT count(*) FROM pg_inherits WHERE inhparent = $1::regclass`, table)
}

// endTwo makes a tick that has failed and one that has succeeded.
func (h *house) endTwo() {
	h.t.Helper()
	for i := range 2 {
		h.trigger()
		one := h.lease("overlap", 1)[0]
		if i == 0 {
			h.fail(one)
			continue
		}
		h.finish(one)
	}
}

func TestDaysThatNobodyKeepsAreDropped(t *testing.T) {
	t.Parallel()
	h, quota := aging(t)
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("buffer_all"))
	h.endTwo()
	h.trigger() // runs still
	h.trigger() // waits for it
	id := h.history("overlap", "k")[0].TickID
	for _, table := range []string{"tick", "attempt", "roll"} {
		if n := h.partitions(table); n != 10 {
			t.Fatalf("%d partitions of %s", n, table)
		}
	}
	q := tenants.Wide()
	q.DeadLetterRetentionDays = 60
	quota.Store(new(q))
	h.retain(time.Now().AddDate(0, 0, 20))
	if n := h.number(`SELECT count(*) FROM tick`); n != 4 || h.number(`SELECT count(*) FROM attempt`) != 0 {
		t.Errorf("after 20 days %d ticks are left", n)
	}
	h.retain(time.Now().AddDate(0, 0, 32))
	if n := h.number(`SELECT count(*) FROM tick`); n != 0 {
		t.Errorf("after 32 days %d ticks are left", n)
	}
	h.idle() // what never ended was cancelled, and nothing waits for it
	if got, err := h.dispatch.Reader.Tick(t.Context(), h.tenant, id); err != nil || got.State != "failed" {
		t.Errorf("the dead letter outlives its day: got %+v, %v", got, err)
	}
	q = tenants.Wide()
	q.DeadLetterRetentionDays = 1
	quota.Store(new(q))
	h.retain(time.Now().AddDate(0, 0, 2))
	if n := h.number(`SELECT count(*) FROM dead_letter`); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

// A partition that is being read is not waited for, and who writes is not held up.
func TestDroppingADayHoldsUpNobody(t *testing.T) {
	t.Parallel()
	h, _ := aging(t)
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("allow_all"))
	old := time.Now().UTC().AddDate(0, 0, -40)
	day := old.Truncate(24 * time.Hour)
	h.exec(fmt.Sprintf(`CREATE TABLE tick_%s PARTITION OF tick FOR VALUES FROM ('%s') TO ('%s')`, day.Format("20060102"), day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
	h.exec(fmt.Sprintf(`ALTER TABLE tick_%s OWNER TO carillon_engine`, day.Format("20060102")))
	reader, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), `SELECT count(*) FROM tick`); err != nil {
		t.Fatal(err)
	}
	before := h.partitions("tick")
	h.retain(time.Now())
	h.trigger()
	if n := h.partitions("tick"); n != before {
		t.Errorf("%d partitions, want %d while they are read", n, before)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.retain(time.Now())
	if n := h.partitions("tick"); n != before {
		t.Errorf("%d partitions, want %d before the pause is over", n, before)
	}
	until(t, "it is dropped", func() bool {
		h.exec(`UPDATE partition_attempt SET next_at = now()`)
		h.retain(time.Now())
		return h.partitions("tick") == before-1
	})
}

func TestWhatATenantKeepsNoLongerIsHiddenAtOnceAndDeleted(t *testing.T) {
	t.Parallel()
	h, quota := aging(t)
	c := h.open(h.dispatch).operator()
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("allow_all"))
	h.endTwo()
	h.exec(`UPDATE tick SET ended_at = ended_at - interval '3 days', fired_at = fired_at - interval '3 days', nominal_at = nominal_at - interval '3 days'`)
	h.exec(`UPDATE roll SET nominal_at = nominal_at - interval '3 days'`)
	h.exec(`UPDATE attempt SET nominal_at = nominal_at - interval '3 days', ended_at = ended_at - interval '3 days'`)
	h.endTwo()
	seen := func() (here, there int) {
		all := get[page](c, 200, "GET", "/v1/ticks", "").Items
		return len(h.history("overlap", "k")), len(all)
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
	h.retain(time.Now())
	for _, table := range []string{"tick", "roll"} {
		if n := h.number(`SELECT count(*) FROM ` + table + ` WHERE nominal_at < now() - interval '1 day'`); n != 0 {
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
			h, _ := aging(t)
			h.start(h.dispatch)
			kept := &policy.Delivery{Retention: &policy.Retention{Succeeded: "2h", Failed: "5h"}}
			p := rarely("allow_all")
			if own {
				p.Delivery = kept
			} else if _, _, err := h.schedules.PutWorkflow(t.Context(), h.tenant, "overlap", schedules.WorkflowParams{Defaults: &policy.Defaults{Delivery: kept}}); err != nil {
				t.Fatal(err)
			}
			h.put("overlap", "k", p)
			h.endTwo()
			h.wantStates("failed", "succeeded")
			h.exec(`UPDATE tick SET ended_at = ended_at - interval '3 hours'`)
			h.wantStates("failed")
			h.retain(time.Now())
			if n := h.number(`SELECT count(*) FROM tick`); n != 1 {
				t.Errorf("%d ticks are left", n)
			}
			h.exec(`UPDATE tick SET ended_at = ended_at - interval '3 hours'`)
			h.wantStates()
			h.retain(time.Now())
			if n := h.number(`SELECT count(*) FROM tick`); n != 0 {
				t.Errorf("%d ticks are left", n)
			}
		})
	}
}

func TestVersionsAreKeptWhileADeadLetterNamesThem(t *testing.T) {
	t.Parallel()
	h, quota := aging(t)
	h.unmended()
	h.start(h.dispatch)
	h.put("overlap", "k", rarely("allow_all"))
	h.endTwo()
	for _, payload := range []string{`1`, `2`, `3`} {
		p := rarely("allow_all")
		p.Payload = web.Raw(payload)
		h.put("overlap", "k", p)
	}
	h.exec(`UPDATE revision SET ended_at = ended_at - interval '50 days'`)
	h.retain(time.Now())
	if n := h.number(`SELECT count(*) FROM revision`); n != 3 {
		t.Errorf("%d versions are left of 3", n)
	}
	q := tenants.Wide()
	q.AuditRetentionDays = 1
	quota.Store(&q)
	h.retain(time.Now())
	if n := h.number(`SELECT count(*) FROM revision WHERE version = 1`); n != 1 || h.number(`SELECT count(*) FROM revision`) != 1 {
		t.Errorf("the version that the dead letter names is not the one left")
	}
	h.wantBytesCounted()
}

func TestDaysAreMadeOfWhatCameBefore(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("overlap", "k", rarely("allow_all"))
	h.trigger() // before anybody made the day's partition
	if n := h.number(`SELECT count(*) FROM tick_default`); n != 1 {
		t.Fatalf("%d ticks in the default partition", n)
	}
	h.start(h.dispatch)
	if n := h.number(`SELECT count(*) FROM tick_default`); n != 0 || h.number(`SELECT count(*) FROM tick`) != 1 {
		t.Errorf("%d ticks in the default partition", n)
	}
	h.finish(h.lease("overlap", 1)[0])
	h.wantStates("succeeded")
}

// A version that ended longer ago than ticks are kept keeps its payload only while a tick under way names it.
func TestPayloadsOfVersionsAreDropped(t *testing.T) {
	t.Parallel()
	h, quota := aging(t)
	h.unmended()
	h.start(h.dispatch)
	put := func(payload string) {
		p := rarely("allow_all")
		p.Payload = web.Raw(payload)
		h.put("overlap", "k", p)
	}
	put(`1`)
	h.trigger()
	one := h.lease("overlap", 1)[0]
	put(`2`)
	put(`3`)
	q := tenants.Wide()
	q.TickRetentionDays = 0
	quota.Store(&q)
	kept := func() string {
		t.Helper()
		page, _, err := h.schedules.Revisions(t.Context(), h.tenant, "overlap", "k", 10, "")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, r := range page {
			all = append(all, fmt.Sprintf("%d=%s dropped:%t", r.Version, r.Payload, r.PayloadKept != nil && !*r.PayloadKept))
		}
		return strings.Join(all, ", ")
	}
	h.retain(time.Now())
	if got, want := kept(), "3=3 dropped:false, 2= dropped:true, 1=1 dropped:false"; got != want {
		t.Errorf("while a tick runs: got %s, want %s", got, want)
	}
	h.finish(one)
	h.retain(time.Now())
	if got, want := kept(), "3=3 dropped:false, 2= dropped:true, 1= dropped:true"; got != want {
		t.Errorf("once it has ended: got %s, want %s", got, want)
	}
	h.wantBytesCounted()
}
