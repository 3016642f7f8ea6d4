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
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// at is a spec of one moment, some whole seconds from now: enough for a slow machine to store it before.
func at(seconds int) calendar.Spec {
	return calendar.Spec{At: []string{time.Now().UTC().Add(time.Duration(seconds) * time.Second).Format("2006-01-02T15:04:05")}}
}

func TestChunksOfADeadProcessAreTakenOver(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	release := make(chan struct{})
	c := h.catcher("hung", 1, nil)
	first := make(chan struct{}, 100)
	c.hang(func(n int) {
		if n == 1 {
			first <- struct{}{}
			<-release
		}
	})
	if err := h.dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.put("hung", "k", schedules.Params{Spec: at(5)})
	<-first
	h.dispatch.Kill()
	close(release)
	died := time.Now()
	h.start(h.process())
	until(t, "the tick was sent again", func() bool { return len(c.caught()) == 2 })
	if took := time.Since(died); took > time.Minute { // it is silent for 5 s, and then taken over; how soon, on a machine that does much else, is not asked
		t.Errorf("taken over after %s", took)
	}
	got := c.caught()
	if got[0].TickID != got[1].TickID || got[1].Attempt != 1 {
		t.Errorf("got %+v and then %+v", got[0], got[1])
	}
	until(t, "it has succeeded", func() bool { return h.history("hung", "k")[0].State == "succeeded" })
}

func TestProcessStartedInTheSamePlaceBuriesTheDead(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := h.dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.exec(`INSERT INTO process (name, place, pid, sweeps, dispatches) SELECT 'dead', place, $1, true, true FROM process`, ended.Process.Pid)
	h.exec(`INSERT INTO process (name, place, pid, sweeps, dispatches) VALUES ('elsewhere', 'another', $1, true, true)`, ended.Process.Pid)
	if err := h.process().Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const dead = `SELECT count(*) FROM process WHERE beat_at <= clock_timestamp() - interval '5 seconds'`
	if n := h.number(dead + ` AND name = 'dead'`); n != 1 {
		t.Errorf("the dead process does not count as dead")
	}
	if n := h.number(dead); n != 1 {
		t.Errorf("%d processes count as dead", n)
	}
}

func TestTwoProcessesShareTheWorkAndOneTakesOver(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("shared", 1, nil)
	other := h.process()
	if err := h.dispatch.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.start(other)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		h.put("shared", key, everySecond())
	}
	until(t, "all keys ticked", func() bool { return len(keysOf(c.caught())) == 8 })
	h.dispatch.Kill()
	before := len(c.caught())
	until(t, "all keys ticked again", func() bool { return len(keysOf(c.caught()[before:])) == 8 })
	for _, key := range []string{"a", "h"} {
		seen := map[time.Time]bool{}
		for i, one := range h.history("shared", key) {
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

func keysOf(ticks []handed) map[string]bool {
	keys := map[string]bool{}
	for _, one := range ticks {
		keys[one.Key] = true
	}
	return keys
}

func TestEndedLeaseIsLeasedAgainAndItsTokenIsStale(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("leased", "k", schedules.Params{Spec: at(5)})
	first := h.lease("leased", 1)[0]
	if _, err := h.pool.Exec(t.Context(), `UPDATE lease SET until_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	second := h.lease("leased", 1)
	if len(second) != 1 || second[0].TickID != first.TickID || second[0].Attempt != 2 {
		t.Fatalf("got %+v, want the same tick in its second attempt", second)
	}
	finish := func(one handed) lease.Verdict {
		r, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "complete"}})
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
	if err := h.pool.QueryRow(t.Context(), `SELECT count(*) FROM lease`).Scan(&leases); err != nil || leases != 0 {
		t.Errorf("%d leases are left, %v", leases, err)
	}
}

func TestAcceptedPushIsEndedByItsToken(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("accepted", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) })
	h.start(h.dispatch)
	h.put("accepted", "k", schedules.Params{Spec: at(5)})
	until(t, "its answer is awaited", func() bool {
		var n int
		return h.pool.QueryRow(t.Context(), `SELECT count(*) FROM held WHERE why = 'answer'`).Scan(&n) == nil && n == 1
	})
	one := c.caught()[0]
	r, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: "fail", Error: "no", Retry: new(false)}})
	if err != nil || r[0] != lease.Done {
		t.Fatalf("got %v, %v", r, err)
	}
	if got := h.history("accepted", "k")[0]; got.State != "failed" || *got.Error != "no" {
		t.Errorf("got %+v", got)
	}
	var held int
	if err := h.pool.QueryRow(t.Context(), `SELECT count(*) FROM held`).Scan(&held); err != nil || held != 0 {
		t.Errorf("%d ticks are held, %v", held, err)
	}
}

func TestAcceptedPushWithoutAnAnswerIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("silent", 1, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusAccepted)
		}
	})
	h.start(h.dispatch)
	h.put("silent", "k", schedules.Params{Spec: at(5), Delivery: &policy.Delivery{Timeout: "1s"}})
	until(t, "it was pushed again", func() bool { return len(c.caught()) == 2 })
	if got := c.caught()[1]; got.Attempt != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestBatchedPushEndsEachTickByItself(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var c *catcher
	c = h.catcher("batched", 100, func(_ int, w http.ResponseWriter) {
		type result struct {
			TickID string `json:"tick_id"`
			Status string `json:"status"`
			Error  string `json:"error,omitempty"`
		}
		var results []result
		for _, one := range c.got {
			status := "succeeded"
			if one.Key == "bad" && one.Attempt == 1 {
				status = "failed"
			}
			results = append(results, result{one.TickID, status, ""})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
	})
	spec := at(5)
	for _, key := range []string{"a", "b", "bad"} {
		h.put("batched", key, schedules.Params{Spec: spec, Delivery: &policy.Delivery{MaxAttempts: new(1)}})
	}
	h.start(h.dispatch)
	states := func(key string) string {
		if ticks := h.history("batched", key); len(ticks) > 0 {
			return ticks[0].State
		}
		return ""
	}
	until(t, "all have ended", func() bool {
		return states("a") == "succeeded" && states("b") == "succeeded" && states("bad") == "failed"
	})
}

func TestDueTicksSurviveChangesOfTheirSchedule(t *testing.T) {
	t.Parallel()
	h := newHouse(t) // not started: nothing is swept until the changes are made
	spec := calendar.Spec{Cron: calendar.StringList{"* * * * * *"}}
	for _, key := range []string{"retimed", "paused", "deleted", "kept"} {
		h.put("edge", key, schedules.Params{Spec: spec})
	}
	due := h.at(`SELECT date_trunc('second', clock_timestamp()) + interval '1 second'`) // after the last of them was put, however long that took
	until(t, "they are due", func() bool { return time.Now().After(due.Add(50 * time.Millisecond)) })
	h.put("edge", "retimed", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}})
	if _, _, err := h.schedules.Pause(t.Context(), h.tenant, "edge", "paused", schedules.PauseParams{}, schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := h.schedules.Delete(t.Context(), h.tenant, "edge", "deleted", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	h.start(h.dispatch)
	want := map[string][2]string{"retimed": {"running", ""}, "paused": {"skipped", "paused"}, "deleted": {"cancelled", ""}, "kept": {"running", ""}}
	for key, state := range want {
		until(t, key+" has its tick", func() bool { return len(h.history("edge", key)) > 0 })
		one := h.history("edge", key)[0]
		if one.State != state[0] || one.Reason != state[1] {
			t.Errorf("%s: got %s %s at %s, want %v", key, one.State, one.Reason, one.Timestamp, state)
		}
	}
}

func TestMissedTimesAreCountedOrCaughtUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	put := func(key, missed string) {
		h.put("missed", key, schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"* * * * *"}}, Policy: &policy.Policy{Missed: missed, Overlap: "allow_all"}})
	}
	put("last", "last")
	put("all", "all")
	put("none", "none")
	// The clock cannot be moved: the cohorts and their members are moved back by ten minutes instead.
	if _, err := h.pool.Exec(t.Context(), `UPDATE cohort SET next_at = next_at - interval '10 minutes', due_at = due_at - interval '10 minutes'`); err != nil {
		t.Fatal(err)
	}
	if _, err := h.pool.Exec(t.Context(), `UPDATE member SET from_at = from_at - interval '20 minutes'`); err != nil {
		t.Fatal(err)
	}
	h.start(h.dispatch)
	until(t, "all are caught up", func() bool { return len(h.history("missed", "all")) >= 10 && len(h.history("missed", "last")) >= 1 })
	if one := h.history("missed", "last")[0]; one.MissedCount < 9 || one.MissedCount > 10 || one.Cause != "catch_up" || one.State != "running" {
		t.Errorf("last: got %+v", one)
	}
	for i, one := range h.history("missed", "all")[:10] {
		if one.MissedCount != 0 || one.State != "running" || i > 0 && one.Timestamp.Sub(*one.LastTimestamp) != time.Minute {
			t.Errorf("all, %d: got %+v", i, one)
		}
	}
}

func TestLastTickBeforeALateRunIsNotLost(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	put := func(key string, most int) {
		h.put("few", key, schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"* * * * *"}, MaxTicks: &most}})
	}
	put("two", 2)
	h.exec(`UPDATE cohort SET next_at = next_at - interval '10 minutes', due_at = due_at - interval '10 minutes'`)
	h.exec(`UPDATE member SET from_at = from_at - interval '10 minutes', until_at = until_at - interval '10 minutes'`)
	h.start(h.dispatch)
	until(t, "its last tick is there", func() bool { return len(h.history("few", "two")) == 1 })
	one := h.history("few", "two")[0]
	if last := h.at(`SELECT until_at FROM member UNION ALL SELECT max(nominal_at) FROM tick LIMIT 1`); one.MissedCount != 1 || !one.Timestamp.Equal(last) {
		t.Errorf("got %+v, want it at %s for two", one, last)
	}
}

func TestTriggerMakesOneManualTick(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	s := h.put("manual", "k", schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"0 0 1 1 *"}}, Payload: web.Raw(`1`)})
	trigger := func(payload string) history.Tick {
		one, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "manual", "k", control.TriggerParams{Payload: web.Raw(payload)}, once.Request{})
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
	got := h.lease("manual", 10)
	if len(got) != 1 || got[0].TickID != one.TickID || string(got[0].Payload) != `{"mine":true}` {
		t.Errorf("got %+v", got)
	}
	after, err := h.schedules.Get(t.Context(), h.tenant, "manual", "k")
	if err != nil || !after.NextAt.Equal(*s.NextAt) || after.Version != s.Version || *after.LastTickID == "" {
		t.Errorf("the schedule moved: %+v, %v", after, err)
	}
}

func TestFailingScheduleIsPaused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.config.Pause = func(ctx context.Context, tenant tenants.ID, id int64, note string) error {
		return h.schedules.PauseFailing(ctx, tenant, id, note)
	}
	d := h.process()
	h.catcher("failing", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(500) })
	h.start(d)
	p := everySecond()
	p.Policy = &policy.Policy{PauseAfterFailures: new(2)}
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.put("failing", "k", p)
	until(t, "it is paused", func() bool {
		s, err := h.schedules.Get(t.Context(), h.tenant, "failing", "k")
		return err == nil && s.Status == schedules.Paused && s.StatusNote != nil
	})
}

func TestExhaustedScheduleIsCompleted(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("over", "k", schedules.Params{Spec: at(5)})
	h.lease("over", 1)
	until(t, "it is completed", func() bool {
		s, err := h.schedules.Get(t.Context(), h.tenant, "over", "k")
		return err == nil && s.Status == schedules.Completed
	})
}

func TestChunkWhoseOpeningWasCutOffIsSent(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.catcher("cut", 1, nil)
	h.start(h.dispatch)
	h.put("cut", "k", schedules.Params{Spec: at(5)})
	until(t, "it was pushed and its chunk is done", func() bool {
		return h.number(`SELECT count(*) FROM chunk WHERE done_at IS NOT NULL`) == 1 && len(c.caught()) == 1
	})
	// As if the opening had been committed, and its process had never learnt of it.
	h.exec(`UPDATE chunk SET done_at = NULL, opened_at = opened_at - interval '5 seconds'`)
	h.exec(`UPDATE tick SET state = 1, ended_at = NULL`)
	until(t, "it was sent", func() bool { return len(c.caught()) == 2 })
	until(t, "its chunk is done", func() bool { return h.number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
}
