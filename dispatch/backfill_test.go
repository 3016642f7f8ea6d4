package dispatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const backfill = "/v1/workflows/w/schedules/k/backfill"

// hourly is a schedule that fires at half past each hour.
func hourly(overlap string) schedules.Params {
	return schedules.Params{
		Spec: calendar.Spec{Cron: []string{"30 * * * *"}}, Policy: &policy.Policy{Overlap: overlap}, Payload: web.Raw(`{"of": "schedule"}`),
	}
}

// hours is a span of n whole hours, the last of which ended some hours ago.
func hours(n int) (from, to time.Time) {
	to = time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	return to.Add(-time.Duration(n) * time.Hour), to
}

func span(from, to time.Time, more string) string {
	return `{"from": "` + from.Format(time.RFC3339) + `", "to": "` + to.Format(time.RFC3339) + `"` + more + `}`
}

func (h *house) backfill(from, to time.Time, overlap string) operations.Answer {
	h.t.Helper()
	b, _, err := h.dispatch.Control.Backfill(h.t.Context(), policy.Name{Tenant: h.tenant, Workflow: "w", Key: "k"}, control.BackfillParams{From: from, To: to, Overlap: overlap}, "ann", once.Request{})
	if err != nil {
		h.t.Fatal(err)
	}
	return *b.Operation
}

func (h *house) ended(id string) operations.Answer {
	h.t.Helper()
	until(h.t, "the operation has ended", func() bool { return h.operation(id).EndedAt != nil })
	return h.operation(id)
}

func TestBackfillMakesEachTickWhenTheLastHasEnded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	h.start(h.dispatch)
	before := h.put("w", "k", hourly("skip"))
	from, to := hours(4)
	plan := get[control.BackfillPlan](c, 200, "POST", backfill, span(from, to, `, "dry_run": true`))
	if plan.Count != 4 || plan.Existing != 0 || !plan.First.Equal(from.Add(30*time.Minute)) || !plan.Last.Equal(to.Add(-30*time.Minute)) {
		t.Errorf("got %+v", plan)
	}
	begun := get[operations.Answer](c, 202, "POST", backfill, span(from, to, ""), "Idempotency-Key", "one")
	if again := get[operations.Answer](c, 202, "POST", backfill, span(from, to, ""), "Idempotency-Key", "one"); again.ID != begun.ID {
		t.Errorf("one key began %s and %s", begun.ID, again.ID)
	}
	if *begun.Total != 4 {
		t.Errorf("got %+v", begun)
	}
	for i := range 4 {
		ticks := h.lease("w", 10)
		if len(ticks) != 1 {
			t.Fatalf("turn %d: leased %d ticks", i, len(ticks))
		}
		one, want := ticks[0], from.Add(time.Duration(i)*time.Hour+30*time.Minute)
		if !one.Timestamp.Equal(want) || one.Cause != "backfill" || one.Occurrence != nil || one.LastTimestamp == nil || !one.LastTimestamp.Equal(want.Add(-time.Hour)) {
			t.Errorf("turn %d: got %+v", i, one)
		}
		h.finish(one)
	}
	if op := h.ended(begun.ID); op.State != "succeeded" || op.Done != 4 || op.Counts["made"] != 4 {
		t.Errorf("got %+v", op)
	}
	h.idle()
	after, err := h.schedules.Get(t.Context(), h.tenant, "w", "k")
	if err != nil || after.Stats.Fired != 4 || after.Stats.Succeeded != 4 || after.LastAt != nil || !after.NextAt.Equal(*before.NextAt) {
		t.Errorf("got %+v, %v", after, err)
	}
	if got := get[page](c, 200, "GET", "/v1/ticks?workflow=w", "").Items; len(got) != 4 || got[0].Cause != "backfill" {
		t.Errorf("got %+v", got)
	}
	// Once more over a longer span: what has a tick is left alone.
	plan = get[control.BackfillPlan](c, 200, "POST", backfill, span(from.Add(-time.Hour), to, `, "dry_run": true`))
	if plan.Count != 5 || plan.Existing != 4 {
		t.Errorf("got %+v", plan)
	}
	op := h.backfill(from.Add(-time.Hour), to, "")
	h.finish(h.lease("w", 10)[0])
	if got := h.ended(op.ID); got.Counts["made"] != 1 || got.Counts["existing"] != 4 {
		t.Errorf("got %+v", got)
	}
	h.idle()
}

func TestOwnTickWaitsForABackfilledOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("w", "k", hourly("skip"))
	from, to := hours(3)
	h.backfill(from, to, "buffer_all")
	first := h.lease("w", 10)[0]
	made, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "w", "k", control.TriggerParams{}, once.Request{})
	if err != nil || made.State != "scheduled" {
		t.Fatalf("got %+v, %v", made, err)
	}
	h.finish(first)
	next := h.lease("w", 10)
	if len(next) != 1 || next[0].TickID != made.TickID {
		t.Fatalf("its own did not come next: got %+v", next)
	}
	h.finish(next[0])
	for range 2 {
		h.finish(h.lease("w", 10)[0])
	}
	h.idle()
}

func TestBackfillAtOnceAndBesideTheSweep(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	p := everySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	h.put("w", "k", p)
	until(t, "some have fired", func() bool { return h.number(`SELECT count(*) FROM tick`) >= 2 })
	now := time.Now().UTC().Truncate(time.Second)
	from := now.Add(-90 * time.Second)
	op := h.ended(h.backfill(from, now, "allow_all").ID)
	if op.State != "succeeded" || op.Done != 90 || op.Counts["made"]+op.Counts["existing"] != 90 || op.Counts["existing"] == 0 {
		t.Errorf("got %+v", op)
	}
	for _, one := range h.history("w", "k") {
		if one.State != "running" {
			t.Errorf("%s of cause %s is %s", one.Timestamp, one.Cause, one.State)
		}
	}
	seen := map[time.Time]int{}
	for _, one := range h.history("w", "k") {
		seen[one.Timestamp]++
	}
	for at := from; at.Before(now); at = at.Add(time.Second) {
		if seen[at] != 1 {
			t.Errorf("%d ticks at %s", seen[at], at)
		}
	}
}

func TestBackfillEndsWithItsScheduleAndWhenItIsCancelled(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("w", "k", hourly("skip"))
	from, to := hours(200)
	op := h.backfill(from, to, "")
	until(t, "it has begun", func() bool { return h.operation(op.ID).Done > 0 })
	if _, err := h.config.Operations.Cancel(t.Context(), h.tenant, op.ID); err != nil {
		t.Fatal(err)
	}
	if got := h.ended(op.ID); got.State != "cancelled" {
		t.Errorf("got %+v", got)
	}
	made := h.number(`SELECT count(*) FROM tick`)
	if made == 0 || made >= 200 {
		t.Errorf("%d ticks were made", made)
	}
	op = h.backfill(from, to, "")
	until(t, "it has begun", func() bool { return h.operation(op.ID).StartedAt != nil })
	if err := h.schedules.Delete(t.Context(), h.tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if got := h.ended(op.ID); got.State != "succeeded" || got.Error != nil {
		t.Errorf("got %+v", got)
	}
	until(t, "what waited is cancelled", func() bool { return h.number(`SELECT count(*) FROM buffered`) == 0 })
}

func TestBackfillIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	c := s.operator()
	h.put("w", "k", hourly("skip"))
	from, to := hours(4)
	for _, wrong := range []struct {
		status              int
		code, pointer, body string
	}{
		{422, "invalid", "/to", span(from, time.Now().Add(time.Hour), "")},
		{422, "invalid", "/to", span(to, from, "")},
		{422, "invalid", "/from", span(from.AddDate(0, -2, 0), to, "")},
		{422, "invalid", "/overlap", span(from, to, `, "overlap": "skip"`)},
		{422, "invalid", "/from /to", `{}`},
		{400, "unknown_field", "/until", `{"until": 1}`},
		{400, "invalid_json", "", `{`},
	} {
		c.refused(wrong.status, wrong.code, wrong.pointer, "POST", backfill, wrong.body)
	}
	c.refused(404, "not_found", "", "POST", "/v1/workflows/w/schedules/absent/backfill", span(from, to, ""))
	s.as("rival", tenants.TenantAdmin).refused(404, "not_found", "", "POST", backfill, span(from, to, ""))
	h.put("w", "fast", everySecond())
	c.refused(422, "too_many_ticks", "/to", "POST", "/v1/workflows/w/schedules/fast/backfill", span(from, to, ""))
	if n := h.number(`SELECT count(*) FROM tick`); n != 0 {
		t.Errorf("%d ticks were made", n)
	}
}

func TestDeadLettersAreDeliveredAgainByFilter(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	c := s.operator()
	h.start(h.dispatch)
	for _, key := range []string{"a", "b", "gone"} {
		h.put("w", key, rarely("skip"))
		get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/"+key+"/trigger", "")
	}
	for _, one := range c.leaseAll(3) {
		h.fail(one)
	}
	keys := func(query string) (all []string) {
		for _, one := range get[page](c, 200, "GET", "/v1/admin/dead-letters"+query, "").Items {
			all = append(all, one.Key)
		}
		slices.Sort(all)
		return all
	}
	if got := keys("?workflow=w"); !slices.Equal(got, []string{"a", "b", "gone"}) {
		t.Errorf("got %q", got)
	}
	cursor, seen := "", 0
	for {
		p := get[page](c, 200, "GET", "/v1/admin/dead-letters?limit=1"+cursor, "")
		seen += len(p.Items)
		if p.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *p.NextCursor
		c.refused(422, "invalid_cursor", "/cursor", "GET", "/v1/admin/dead-letters?key=a"+cursor, "")
		s.as("rival", tenants.TenantAdmin).refused(422, "invalid_cursor", "/cursor", "GET", "/v1/admin/dead-letters?limit=1"+cursor, "")
	}
	if seen != 3 {
		t.Errorf("%d were listed", seen)
	}
	if got := get[page](s.as("rival", tenants.TenantAdmin), 200, "GET", "/v1/admin/dead-letters", "").Items; len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	if err := h.schedules.Delete(t.Context(), h.tenant, "w", "gone", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	const replay = "/v1/admin/dead-letters/replay"
	first := get[operations.Answer](c, 202, "POST", replay, `{"filter": {"workflow": "w", "key": "a"}}`, "Idempotency-Key", "one")
	if op := h.ended(first.ID); op.State != "succeeded" || op.Counts["replayed"] != 1 {
		t.Errorf("got %+v", op)
	}
	if again := get[operations.Answer](c, 202, "POST", replay, `{"filter": {"workflow": "w", "key": "a"}}`, "Idempotency-Key", "one"); again.ID != first.ID {
		t.Errorf("one key began %s and %s", first.ID, again.ID)
	}
	h.finish(h.lease("w", 1)[0])
	all := get[operations.Answer](c, 202, "POST", replay, `{"filter": {"from": "2026-01-01T00:00:00Z"}}`)
	if op := h.ended(all.ID); op.State != "succeeded" || op.Counts["replayed"] != 1 || op.Counts["schedule_deleted"] != 1 {
		t.Errorf("got %+v", op)
	}
	if got := h.lease("w", 1)[0]; got.Key != "b" || got.Attempt != 2 {
		t.Errorf("got %+v", got)
	}
	if got := keys(""); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("got %q", got)
	}
	c.refused(422, "invalid", "/filter/workflow", "POST", replay, `{"filter": {"workflow": "a b"}}`)
	c.refused(400, "unknown_field", "/filter/colour", "POST", replay, `{"filter": {"colour": "red"}}`)
}

// A request that waited for a second connection while it holds one could wait for requests that do the same.
func TestABackfillTakesOneConnection(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", hourly("skip"))
	pool, err := postgres.Open(t.Context(), h.pool.Config().ConnString(), postgres.Options{MaxConns: 1, Role: postgres.APIRole})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h.config.API, h.config.Timings = postgres.NewWall(pool), cohorts.NewTimings() // which knows no timing yet
	from, to := hours(4)
	ctx := postgres.ForTenant(t.Context(), int32(h.tenant))
	if _, _, err := h.process().Control.Backfill(ctx, policy.Name{Tenant: h.tenant, Workflow: "w", Key: "k"}, control.BackfillParams{From: from, To: to, DryRun: true}, "ann", once.Request{}); err != nil {
		t.Error(err)
	}
}
