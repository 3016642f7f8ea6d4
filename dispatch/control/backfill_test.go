package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const backfill = "/v1/workflows/w/schedules/k/backfill"

func span(from, to time.Time, more string) string {
	return `{"from": "` + from.Format(time.RFC3339) + `", "to": "` + to.Format(time.RFC3339) + `"` + more + `}`
}

func TestBackfillMakesEachTickWhenTheLastHasEnded(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Start(h.Dispatch)
	before := h.Put("w", "k", dispatchtest.Hourly("skip"))
	from, to := dispatchtest.Hours(4)
	minute := before.NextAt.Sub(before.NextAt.Truncate(time.Hour)) // of each hour, at which it fires
	plan := dispatchtest.Get[control.BackfillPlan](c, 200, "POST", backfill, span(from, to, `, "dry_run": true`))
	if plan.Count != 4 || plan.Existing != 0 || !plan.First.Equal(from.Add(minute)) || !plan.Last.Equal(to.Add(minute-time.Hour)) {
		t.Errorf("got %+v", plan)
	}
	begun := dispatchtest.Get[struct {
		operations.Answer
		Operation operations.Answer
	}](c, 202, "POST", backfill, span(from, to, ""), "Idempotency-Key", "one")
	if begun.Operation.ID != begun.ID {
		t.Errorf("got %+v", begun)
	}
	if again := dispatchtest.Get[operations.Answer](c, 202, "POST", backfill, span(from, to, ""), "Idempotency-Key", "one"); again.ID != begun.ID {
		t.Errorf("one key began %s and %s", begun.ID, again.ID)
	}
	if *begun.Total != 4 {
		t.Errorf("got %+v", begun)
	}
	for i := range 4 {
		ticks := h.Lease("w", 10)
		if len(ticks) != 1 {
			t.Fatalf("turn %d: leased %d ticks", i, len(ticks))
		}
		one, want := ticks[0], from.Add(time.Duration(i)*time.Hour+minute)
		if !one.Timestamp.Equal(want) || one.Cause != "backfill" || one.Occurrence != nil || one.LastTimestamp == nil || !one.LastTimestamp.Equal(want.Add(-time.Hour)) {
			t.Errorf("turn %d: got %+v", i, one)
		}
		h.Finish(one)
	}
	if op := h.Ended(begun.ID); op.State != "succeeded" || op.Done != 4 || op.Counts["made"] != 4 {
		t.Errorf("got %+v", op)
	}
	h.Idle()
	after, err := h.Schedules.Get(t.Context(), h.Tenant, "w", "k")
	if err != nil || after.Stats.Fired != 4 || after.Stats.Succeeded != 4 || after.LastAt != nil || !after.NextAt.Equal(*before.NextAt) {
		t.Errorf("got %+v, %v", after, err)
	}
	if got := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/ticks?workflow=w", "").Items; len(got) != 4 || got[0].Cause != "backfill" {
		t.Errorf("got %+v", got)
	}
	for query, want := range map[string]int{"": 4, "&cause=backfill": 4, "&cause=manual": 0, "&key=k": 4, "&subject=another": 0, "&workflow=v": 0, "&state=succeeded": 4} {
		if got := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/ticks?operation="+begun.ID+query, "").Items; len(got) != want {
			t.Errorf("%s: the operation made %d ticks, want %d", query, len(got), want)
		}
	}
	// Once more over a longer span: what has a tick is left alone.
	plan = dispatchtest.Get[control.BackfillPlan](c, 200, "POST", backfill, span(from.Add(-time.Hour), to, `, "dry_run": true`))
	if plan.Count != 5 || plan.Existing != 4 {
		t.Errorf("got %+v", plan)
	}
	op := h.Backfill(from.Add(-time.Hour), to, "")
	h.Finish(h.Lease("w", 10)[0])
	if got := h.Ended(op.ID); got.Counts["made"] != 1 || got.Counts["existing"] != 4 {
		t.Errorf("got %+v", got)
	}
	if got := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/ticks?operation="+op.ID, "").Items; len(got) != 1 || !got[0].Timestamp.Equal(from.Add(minute-time.Hour)) {
		t.Errorf("the second operation made %+v", got)
	}
	h.Idle()
}

func TestOwnTickWaitsForABackfilledOne(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.Hourly("skip"))
	from, to := dispatchtest.Hours(3)
	h.Backfill(from, to, "buffer_all")
	first := h.Lease("w", 10)[0]
	made, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", "k", control.TriggerParams{}, once.Request{})
	if err != nil || made.State != "scheduled" {
		t.Fatalf("got %+v, %v", made, err)
	}
	h.Finish(first)
	next := h.Lease("w", 10)
	if len(next) != 1 || next[0].TickID != made.TickID {
		t.Fatalf("its own did not come next: got %+v", next)
	}
	h.Finish(next[0])
	for range 2 {
		h.Finish(h.Lease("w", 10)[0])
	}
	h.Idle()
}

func TestBackfillAtOnceAndBesideTheSweep(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{Overlap: "allow_all"}
	h.Put("w", "k", p)
	dispatchtest.Until(t, "some have fired", func() bool { return h.Number(`SELECT count(*) FROM tick`) >= 2 })
	now := time.Now().UTC().Truncate(time.Second)
	from := now.Add(-90 * time.Second)
	op := h.Ended(h.Backfill(from, now, "allow_all").ID)
	if op.State != "succeeded" || op.Done != 90 || op.Counts["made"]+op.Counts["existing"] != 90 || op.Counts["existing"] == 0 {
		t.Errorf("got %+v", op)
	}
	for _, one := range h.History("w", "k") {
		if one.State != "running" {
			t.Errorf("%s of cause %s is %s", one.Timestamp, one.Cause, one.State)
		}
	}
	seen := map[time.Time]int{}
	for _, one := range h.History("w", "k") {
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
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("w", "k", dispatchtest.Hourly("skip"))
	from, to := dispatchtest.Hours(200)
	op := h.Backfill(from, to, "")
	dispatchtest.Until(t, "it has begun", func() bool { return h.Operation(op.ID).Done > 0 })
	if _, err := h.Config.Operations.Cancel(t.Context(), h.Tenant, op.ID); err != nil {
		t.Fatal(err)
	}
	if got := h.Ended(op.ID); got.State != "cancelled" {
		t.Errorf("got %+v", got)
	}
	made := h.Number(`SELECT count(*) FROM tick`)
	if made == 0 || made >= 200 {
		t.Errorf("%d ticks were made", made)
	}
	op = h.Backfill(from, to, "")
	dispatchtest.Until(t, "it has begun", func() bool { return h.Operation(op.ID).StartedAt != nil })
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if got := h.Ended(op.ID); got.State != "succeeded" || got.Error != nil {
		t.Errorf("got %+v", got)
	}
	dispatchtest.Until(t, "what waited is cancelled", func() bool { return h.Number(`SELECT count(*) FROM buffered`) == 0 })
}

func TestBackfillIsRefused(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	h.Put("w", "k", dispatchtest.Hourly("skip"))
	from, to := dispatchtest.Hours(4)
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
		c.Refused(wrong.status, wrong.code, wrong.pointer, "POST", backfill, wrong.body)
	}
	c.Refused(404, "not_found", "", "POST", "/v1/workflows/w/schedules/absent/backfill", span(from, to, ""))
	s.As("rival", tenants.TenantAdmin).Refused(404, "not_found", "", "POST", backfill, span(from, to, ""))
	h.Put("w", "fast", dispatchtest.EverySecond())
	c.Refused(422, "too_many_ticks", "/to", "POST", "/v1/workflows/w/schedules/fast/backfill", span(from, to, ""))
	if n := h.Number(`SELECT count(*) FROM tick`); n != 0 {
		t.Errorf("%d ticks were made", n)
	}
}

func TestDeadLettersAreDeliveredAgainByFilter(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	h.Start(h.Dispatch)
	for _, key := range []string{"a", "b", "gone"} {
		h.Put("w", key, dispatchtest.Rarely("skip"))
		dispatchtest.Get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/"+key+"/trigger", "")
	}
	for _, one := range c.LeaseAll(3) {
		h.Fail(one)
	}
	keys := func(query string) (all []string) {
		for _, one := range dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/admin/dead-letters"+query, "").Items {
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
		p := dispatchtest.Get[dispatchtest.Page](c, 200, "GET", "/v1/admin/dead-letters?limit=1"+cursor, "")
		seen += len(p.Items)
		if p.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *p.NextCursor
		c.Refused(422, "invalid_cursor", "/cursor", "GET", "/v1/admin/dead-letters?key=a"+cursor, "")
		s.As("rival", tenants.TenantAdmin).Refused(422, "invalid_cursor", "/cursor", "GET", "/v1/admin/dead-letters?limit=1"+cursor, "")
	}
	if seen != 3 {
		t.Errorf("%d were listed", seen)
	}
	if got := dispatchtest.Get[dispatchtest.Page](s.As("rival", tenants.TenantAdmin), 200, "GET", "/v1/admin/dead-letters", "").Items; len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", "gone", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	const replay = "/v1/admin/dead-letters/replay"
	first := dispatchtest.Get[operations.Answer](c, 202, "POST", replay, `{"filter": {"workflow": "w", "key": "a"}}`, "Idempotency-Key", "one")
	if op := h.Ended(first.ID); op.State != "succeeded" || op.Counts["replayed"] != 1 {
		t.Errorf("got %+v", op)
	}
	if again := dispatchtest.Get[operations.Answer](c, 202, "POST", replay, `{"filter": {"workflow": "w", "key": "a"}}`, "Idempotency-Key", "one"); again.ID != first.ID {
		t.Errorf("one key began %s and %s", first.ID, again.ID)
	}
	h.Finish(h.Lease("w", 1)[0])
	all := dispatchtest.Get[operations.Answer](c, 202, "POST", replay, `{"filter": {"from": "2026-01-01T00:00:00Z"}}`)
	if op := h.Ended(all.ID); op.State != "succeeded" || op.Counts["replayed"] != 1 || op.Counts["schedule_deleted"] != 1 {
		t.Errorf("got %+v", op)
	}
	if got := h.Lease("w", 1)[0]; got.Key != "b" || got.Attempt != 2 {
		t.Errorf("got %+v", got)
	}
	if got := keys(""); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("got %q", got)
	}
	c.Refused(422, "invalid", "/filter/workflow", "POST", replay, `{"filter": {"workflow": "a b"}}`)
	c.Refused(400, "unknown_field", "/filter/colour", "POST", replay, `{"filter": {"colour": "red"}}`)
}

// A request that waited for a second connection while it holds one could wait for requests that do the same.
func TestABackfillTakesOneConnection(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.Hourly("skip"))
	pool, err := postgres.Open(t.Context(), h.Pool.Config().ConnString(), postgres.Options{MaxConns: 1, Role: postgres.APIRole})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h.Config.API, h.Config.Timings = postgres.NewTenantPool(pool), cohorts.NewTimings() // which knows no timing yet
	from, to := dispatchtest.Hours(4)
	ctx := postgres.ForTenant(t.Context(), int32(h.Tenant))
	if _, _, err := h.Process().Backfills.Backfill(ctx, policy.Name{Tenant: h.Tenant, Workflow: "w", Key: "k"}, control.BackfillParams{From: from, To: to, DryRun: true}, "ann", once.Request{}); err != nil {
		t.Error(err)
	}
}
