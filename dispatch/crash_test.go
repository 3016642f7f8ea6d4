package dispatch_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func TestChunksOfADeadProcessAreTakenOver(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	release := make(chan struct{})
	c := h.Catcher("hung", 1, nil)
	first := make(chan struct{}, 100)
	c.Hang(func(n int) {
		if n == 1 {
			first <- struct{}{}
			<-release
		}
	})
	if err := h.Dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Put("hung", "k", schedules.Params{Spec: dispatchtest.At(5)})
	<-first
	h.Dispatch.Kill()
	close(release)
	died := time.Now()
	h.Start(h.Process())
	dispatchtest.Until(t, "the tick was sent again", func() bool { return len(c.Caught()) == 2 })
	if took := time.Since(died); took > time.Minute { // it counts as dead after 5 s, and is then taken over; a busy machine may need longer
		t.Errorf("taken over after %s", took)
	}
	got := c.Caught()
	if got[0].TickID != got[1].TickID || got[1].Attempt != 1 {
		t.Errorf("got %+v and then %+v", got[0], got[1])
	}
	dispatchtest.Until(t, "it has succeeded", func() bool { return h.History("hung", "k")[0].State == "succeeded" })
}

func TestProcessStartedInTheSamePlaceBuriesTheDead(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Exec(`INSERT INTO process (name, place, pid, sweeps, dispatches) SELECT 'dead', place, $1, true, true FROM process`, ended.Process.Pid)
	h.Exec(`INSERT INTO process (name, place, pid, sweeps, dispatches) VALUES ('elsewhere', 'another', $1, true, true)`, ended.Process.Pid)
	h.Exec(`UPDATE process SET beat_at = beat_at + interval '1 hour'`) // none of them is silent for too long before the end
	if err := h.Process().Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const dead = `SELECT count(*) FROM process WHERE beat_at <= clock_timestamp() - interval '5 seconds'`
	if n := h.Number(dead + ` AND name = 'dead'`); n != 1 {
		t.Errorf("the dead process does not count as dead")
	}
	if n := h.Number(dead); n != 1 {
		t.Errorf("%d processes count as dead", n)
	}
}

func TestTwoProcessesShareTheWorkAndOneTakesOver(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("shared", 1, nil)
	other := h.Process()
	if err := h.Dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Start(other)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		h.Put("shared", key, dispatchtest.EverySecond())
	}
	dispatchtest.Until(t, "all keys ticked", func() bool { return len(dispatchtest.KeysOf(c.Caught())) == 8 })
	h.Dispatch.Kill()
	before := len(c.Caught())
	dispatchtest.Until(t, "all keys ticked again", func() bool { return len(dispatchtest.KeysOf(c.Caught()[before:])) == 8 })
	for _, key := range []string{"a", "h"} {
		seen := map[time.Time]bool{}
		for i, one := range h.History("shared", key) {
			if seen[one.Timestamp] {
				t.Errorf("key %s: two ticks at %s", key, one.Timestamp)
			}
			seen[one.Timestamp] = true
			if i > 0 && one.State != "skipped" && one.LastTimestamp == nil {
				t.Errorf("key %s, tick %d has no last_timestamp", key, i)
			}
		}
	}
}

func TestEndedLeaseIsLeasedAgainAndItsTokenIsStale(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("leased", "k", schedules.Params{Spec: dispatchtest.At(5)})
	first := h.Lease("leased", 1)[0]
	if _, err := h.Pool.Exec(t.Context(), `UPDATE lease SET until_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	second := h.Lease("leased", 1)
	if len(second) != 1 || second[0].TickID != first.TickID || second[0].Attempt != 2 {
		t.Fatalf("got %+v, want the same tick in its second attempt", second)
	}
	finish := func(one dispatchtest.Handed) lease.Verdict {
		r, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}})
		if err != nil {
			t.Fatal(err)
		}
		return r[0]
	}
	if verdict := finish(first); verdict != lease.Lost {
		t.Errorf("the stale token: got %d, want Lost", verdict)
	}
	if verdict := finish(second[0]); verdict != lease.Done {
		t.Errorf("the live token: got %d, want Done", verdict)
	}
	var leases int
	if err := h.Pool.QueryRow(t.Context(), `SELECT count(*) FROM lease`).Scan(&leases); err != nil || leases != 0 {
		t.Errorf("%d leases are left, %v", leases, err)
	}
}

func TestAcceptedPushIsEndedByItsToken(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("accepted", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) })
	h.Start(h.Dispatch)
	h.Put("accepted", "k", schedules.Params{Spec: dispatchtest.At(5)})
	dispatchtest.Until(t, "its answer is awaited", func() bool {
		var n int
		return h.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delayed WHERE why = 'answer'`).Scan(&n) == nil && n == 1
	})
	one := c.Caught()[0]
	r, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "fail", Error: "no", Retry: new(false)}})
	if err != nil || r[0] != lease.Done {
		t.Fatalf("got %v, %v", r, err)
	}
	if got := h.History("accepted", "k")[0]; got.State != "failed" || *got.Error != "no" {
		t.Errorf("got %+v", got)
	}
	var held int
	if err := h.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delayed`).Scan(&held); err != nil || held != 0 {
		t.Errorf("%d ticks are held, %v", held, err)
	}
}

func TestAcceptedPushWithoutAnAnswerIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("silent", 1, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusAccepted)
		}
	})
	h.Start(h.Dispatch)
	h.Put("silent", "k", schedules.Params{Spec: dispatchtest.At(5), Delivery: &policy.Delivery{Timeout: "1s"}})
	dispatchtest.Until(t, "it was pushed again", func() bool { return len(c.Caught()) == 2 })
	if got := c.Caught()[1]; got.Attempt != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestBatchedPushEndsEachTickByItself(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	var c *dispatchtest.Catcher
	c = h.Catcher("batched", 100, func(_ int, w http.ResponseWriter) {
		type result struct {
			TickID string `json:"tick_id"`
			Status string `json:"status"`
			Error  string `json:"error,omitempty"`
		}
		var results []result
		for _, one := range c.Got {
			status := "succeeded"
			if one.Key == "bad" && one.Attempt == 1 {
				status = "failed"
			}
			results = append(results, result{one.TickID, status, ""})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
	})
	spec := dispatchtest.At(15)
	for _, key := range []string{"a", "b", "bad"} {
		h.Put("batched", key, schedules.Params{Spec: spec, Delivery: &policy.Delivery{MaxAttempts: new(1)}})
	}
	h.Start(h.Dispatch)
	states := func(key string) string {
		if ticks := h.History("batched", key); len(ticks) > 0 {
			return ticks[0].State
		}
		return ""
	}
	dispatchtest.Until(t, "all have ended", func() bool {
		return states("a") == "succeeded" && states("b") == "succeeded" && states("bad") == "failed"
	})
}

func TestDueTicksSurviveChangesOfTheirSchedule(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t) // not started: nothing is swept until the changes are made
	spec := calendar.Spec{Cron: calendar.StringList{"* * * * * *"}}
	for _, key := range []string{"retimed", "paused", "deleted", "kept"} {
		h.Put("edge", key, schedules.Params{Spec: spec})
	}
	due := h.At(`SELECT date_trunc('second', clock_timestamp()) + interval '1 second'`) // after the last of them was put, however long that took
	dispatchtest.Until(t, "they are due", func() bool { return time.Now().After(due.Add(50 * time.Millisecond)) })
	h.Put("edge", "retimed", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}})
	if _, _, err := h.Schedules.Pause(t.Context(), h.Tenant, "edge", "paused", schedules.PauseParams{}, schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "edge", "deleted", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Dispatch)
	want := map[string][2]string{"retimed": {"running", ""}, "paused": {"skipped", "paused"}, "deleted": {"cancelled", ""}, "kept": {"running", ""}}
	for key, state := range want {
		dispatchtest.Until(t, key+" has its tick", func() bool { return len(h.History("edge", key)) > 0 })
		one := h.History("edge", key)[0]
		if one.State != state[0] || one.Reason != state[1] {
			t.Errorf("%s: got %s %s at %s, want %v", key, one.State, one.Reason, one.Timestamp, state)
		}
	}
}

func TestMissedTimesAreCountedOrCaughtUp(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	put := func(key, missed string) {
		h.Put("missed", key, schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"* * * * *"}}, Policy: &policy.Policy{Missed: missed, Overlap: "allow_all"}})
	}
	put("last", "last")
	put("all", "all")
	put("none", "none")
	// The clock cannot be moved: the cohorts and their members are moved back by ten minutes instead.
	if _, err := h.Pool.Exec(t.Context(), `UPDATE cohort SET next_at = next_at - interval '10 minutes', due_at = due_at - interval '10 minutes'`); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pool.Exec(t.Context(), `UPDATE member SET from_at = from_at - interval '20 minutes'`); err != nil {
		t.Fatal(err)
	}
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "all are caught up", func() bool { return len(h.History("missed", "all")) >= 10 && len(h.History("missed", "last")) >= 1 })
	if one := h.History("missed", "last")[0]; one.MissedCount < 9 || one.MissedCount > 10 || one.Cause != "catch_up" || one.State != "running" {
		t.Errorf("last: got %+v", one)
	}
	for i, one := range h.History("missed", "all")[:10] {
		if one.MissedCount != 0 || one.State != "running" || i > 0 && one.Timestamp.Sub(*one.LastTimestamp) != time.Minute {
			t.Errorf("all, %d: got %+v", i, one)
		}
	}
}

func TestLastTickBeforeALateRunIsNotLost(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	put := func(key string, most int) {
		h.Put("few", key, schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"* * * * *"}, MaxTicks: &most}})
	}
	put("two", 2)
	h.Exec(`UPDATE cohort SET next_at = next_at - interval '10 minutes', due_at = due_at - interval '10 minutes'`)
	h.Exec(`UPDATE member SET from_at = from_at - interval '10 minutes', until_at = until_at - interval '10 minutes'`)
	h.Start(h.Dispatch)
	dispatchtest.Until(t, "its last tick is there", func() bool { return len(h.History("few", "two")) == 1 })
	one := h.History("few", "two")[0]
	if last := h.At(`SELECT until_at FROM member UNION ALL SELECT max(nominal_at) FROM tick LIMIT 1`); one.MissedCount != 1 || !one.Timestamp.Equal(last) {
		t.Errorf("got %+v, want it at %s for two", one, last)
	}
}

func TestTriggerMakesOneManualTick(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	s := h.Put("manual", "k", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}, Payload: web.Raw(`1`)})
	trigger := func(payload string) history.Tick {
		one, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "manual", "k", control.TriggerParams{Payload: web.Raw(payload)}, once.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	one := trigger(`{"mine":true}`)
	if one.State != "running" || one.Cause != "manual" || one.Occurrence != nil {
		t.Errorf("got %+v", one)
	}
	if two := trigger(`2`); two.State != "skipped" || two.Reason != "overlap" || two.TickID == one.TickID {
		t.Errorf("while it runs: got %+v", two)
	}
	got := h.Lease("manual", 10)
	if len(got) != 1 || got[0].TickID != one.TickID || string(got[0].Payload) != `{"mine":true}` {
		t.Errorf("got %+v", got)
	}
	after, err := h.Schedules.Get(t.Context(), h.Tenant, "manual", "k")
	if err != nil || !after.NextAt.Equal(*s.NextAt) || after.Version != s.Version || *after.LastTickID == "" {
		t.Errorf("the schedule moved: %+v, %v", after, err)
	}
}

func TestFailingScheduleIsPaused(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Pause = func(ctx context.Context, tenant tenants.ID, id int64, note string) error {
		return h.Schedules.PauseFailing(ctx, tenant, id, note)
	}
	d := h.Process()
	h.Catcher("failing", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(500) })
	h.Start(d)
	p := dispatchtest.EverySecond()
	p.Policy = &policy.Policy{PauseAfterFailures: new(2)}
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.Put("failing", "k", p)
	dispatchtest.Until(t, "it is paused", func() bool {
		s, err := h.Schedules.Get(t.Context(), h.Tenant, "failing", "k")
		return err == nil && s.Status == policy.Paused && s.StatusNote != nil
	})
}

func TestExhaustedScheduleIsCompleted(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("over", "k", schedules.Params{Spec: dispatchtest.At(5)})
	h.Lease("over", 1)
	dispatchtest.Until(t, "it is completed", func() bool {
		s, err := h.Schedules.Get(t.Context(), h.Tenant, "over", "k")
		return err == nil && s.Status == policy.Completed
	})
}

func TestChunkWhoseOpeningWasCutOffIsSent(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Catcher("cut", 1, nil)
	h.Start(h.Dispatch)
	h.Put("cut", "k", schedules.Params{Spec: dispatchtest.At(5)})
	dispatchtest.Until(t, "it was pushed and its chunk is done", func() bool {
		return h.Number(`SELECT count(*) FROM chunk WHERE done_at IS NOT NULL`) == 1 && len(c.Caught()) == 1
	})
	// As if the opening had been committed, and its process had never learnt of it.
	h.Exec(`WITH t AS (UPDATE tick SET state = 1, ended_at = NULL) UPDATE chunk SET done_at = NULL, opened_at = opened_at - interval '5 seconds'`)
	dispatchtest.Until(t, "it was sent", func() bool { return len(c.Caught()) == 2 })
	dispatchtest.Until(t, "its chunk is done", func() bool { return h.Number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
}
