package explain_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/explain"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
)

func TestExplainOverHTTP(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	ask := func(at string) explain.Explanation {
		t.Helper()
		return dispatchtest.Get[explain.Explanation](c, 200, "GET", dispatchtest.ExplainPath+"?at="+url.QueryEscape(at), "")
	}
	want := func(at, outcome string, says ...string) explain.Explanation {
		t.Helper()
		got := ask(at)
		if got.Outcome != outcome {
			t.Errorf("%s: got %+v, want %s", at, got, outcome)
		}
		for _, part := range says {
			if !strings.Contains(got.Detail, part) {
				t.Errorf("%s: %q does not say %q", at, got.Detail, part)
			}
		}
		return got
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := h.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	by := schedules.Changer{By: "bob"}
	minute := time.Now().UTC().Add(5*time.Hour + 45*time.Minute + 30*time.Minute).Minute() // the next tick comes in half an hour or later
	p := schedules.Params{Spec: calendar.Spec{Timezone: "Asia/Kathmandu", Cron: calendar.StringList{fmt.Sprintf("%d 8 * * *", minute)}}}
	made := h.Put("w", "k", p)
	next := *made.NextAt
	local := func(at time.Time) string { return at.Add(5*time.Hour + 45*time.Minute).Format("2006-01-02T15:04") }

	e := want(local(next), "will_fire", fmt.Sprintf("08:%02d +05:45 in Asia/Kathmandu", minute))
	if !e.At.Equal(next) || e.Previous != nil || !e.Next.Equal(made.Upcoming[1]) || e.Tick != nil {
		t.Errorf("got %+v", e)
	}
	want("1999-01-01T08:00", "before_created")
	want(next.Add(time.Hour).Format(time.RFC3339), "not_due")
	if _, _, err := h.Schedules.Reschedule(t.Context(), h.Tenant, "w", "k", schedules.RescheduleParams{At: next, To: next.Add(time.Hour)}, by); err != nil {
		t.Fatal(err)
	}
	want(local(next), "not_due", "was moved to", "by bob")
	want(local(next.Add(time.Hour)), "will_fire", "was moved there")
	if _, _, err := h.Schedules.Skip(t.Context(), h.Tenant, "w", "k", schedules.SkipParams{At: []time.Time{made.Upcoming[1]}}, by); err != nil {
		t.Fatal(err)
	}
	want(local(made.Upcoming[1]), "skipped", "asked for")
	for sent, code := range map[string]string{"": "required", "?at=": "invalid", "?at=tomorrow": "invalid", "?at=0001-01-01T00:00:00Z": "invalid", "?at=2200-01-01T00:00": "invalid"} {
		c.Refused(422, code, "/at", "GET", dispatchtest.ExplainPath+sent, "")
	}
	c.Refused(404, "not_found", "", "GET", "/v1/workflows/w/schedules/none/explain?at=2026-01-01T08:00", "")

	manual := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	if e := want(manual.Timestamp.Format(time.RFC3339), "running", "by hand"); e.Tick == nil || e.Tick.TickID != manual.TickID {
		t.Errorf("got %+v", e)
	}
	want(manual.Timestamp.Add(time.Minute).Format(time.RFC3339), "not_due", "triggered by hand at")

	// As if it had been there for three weeks, changed twice on the way, and had fired but when it was paused.
	exec(`UPDATE schedule SET created_at = created_at - interval '21 days', updated_at = updated_at - interval '21 days'`)
	if _, _, err := h.Schedules.Pause(t.Context(), h.Tenant, "w", "k", schedules.PauseParams{}, by); err != nil {
		t.Fatal(err)
	}
	p.Spec.Cron = calendar.StringList{fmt.Sprintf("%d 9 * * *", minute)}
	h.Put("w", "k", p)
	if _, _, err := h.Schedules.Resume(t.Context(), h.Tenant, "w", "k", schedules.ResumeParams{}, by); err != nil {
		t.Fatal(err)
	}
	ago := func(days int) time.Time { return next.AddDate(0, 0, -days) }
	exec(`UPDATE revision SET ended_at = $1 WHERE version = 1`, ago(15).Add(2*time.Hour))
	exec(`UPDATE revision SET changed_at = $1, ended_at = $2 WHERE version = 2`, ago(15).Add(2*time.Hour), ago(10).Add(2*time.Hour))
	exec(`UPDATE revision SET changed_at = $1, ended_at = $2 WHERE version = 3`, ago(10).Add(2*time.Hour), ago(5).Add(2*time.Hour))
	exec(`UPDATE schedule SET updated_at = $1`, ago(5).Add(2*time.Hour))
	exec(`UPDATE member SET from_at = $1`, ago(5).Add(2*time.Hour))
	exec(`UPDATE schedule_state SET seen_at = $1`, ago(2).Add(time.Hour))
	exec(`INSERT INTO tick (tenant_id, schedule_id, nominal_at, seq, version, missed_count, fired_at, ended_at, shard, attempt, state, reason, cause, dst)
		SELECT s.tenant_id, s.id, n.at, 0, 4, n.missed, n.at + interval '1 second', n.at + interval '2 seconds', s.shard, 1, 2, 0, 0, 0
		FROM schedule s, (VALUES ($1::timestamptz, 0), ($2, 0), ($3, 1)) AS n (at, missed)`, ago(16), ago(4).Add(time.Hour), ago(2).Add(time.Hour))
	want(local(ago(16)), "fired", "succeeded")
	want(local(ago(16).Add(time.Hour)), "not_due", fmt.Sprintf("08:%02d", minute))
	want(local(ago(13)), "paused", local(ago(15))[:10])
	want(local(ago(13).Add(time.Hour)), "not_due")                 // not of the spec then
	want(local(ago(8).Add(time.Hour)), "paused")                   // by the next spec
	want(local(ago(4)), "not_due", fmt.Sprintf("09:%02d", minute)) // the spec was changed since
	want(local(ago(4).Add(time.Hour)), "fired")
	if e := want(local(ago(3).Add(time.Hour)), "missed"); e.Tick == nil || !e.Tick.Timestamp.Equal(ago(2).Add(time.Hour)) {
		t.Errorf("got %+v", e)
	}
	want(local(ago(1).Add(time.Hour)), "will_fire") // not swept, as no process is at work
	if e := want(local(ago(9)), "not_due"); !e.Next.Equal(ago(4).Add(time.Hour)) || !e.Previous.Equal(ago(15)) {
		t.Errorf("got %s and %s", e.Previous, e.Next)
	}
	want(local(ago(30)), "before_created")
	exec(`UPDATE schedule SET keep_succeeded_s = 86400`)
	want(local(ago(4).Add(time.Hour)), "unknown", "no longer kept")

	if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", "k", by); err != nil {
		t.Fatal(err)
	}
	c.Refused(404, "not_found", "", "GET", dispatchtest.ExplainPath+"?at=2026-01-01T08:00", "")
}
