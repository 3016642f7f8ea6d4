package dispatch_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
)

// delay fires at once, and then a while after each tick has ended.
func delay(every string) schedules.Params {
	return schedules.Params{Spec: calendar.Spec{Intervals: []calendar.Interval{{Every: every, Mode: "fixed_delay", First: "now"}}}}
}

func (h *house) end(one handed, outcome string, retry bool) {
	h.t.Helper()
	r, err := h.dispatch.Leases.Finish(h.t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: outcome, Retry: &retry, Error: "e", RetryAfter: "0s"}})
	if err != nil || r[0] != lease.Done {
		h.t.Fatalf("end: %v, %v", r, err)
	}
}

func (h *house) next(workflow, key string) *time.Time {
	h.t.Helper()
	s, err := h.schedules.Get(h.t.Context(), h.tenant, workflow, key)
	if err != nil {
		h.t.Fatal(err)
	}
	return s.NextAt
}

// wantAfter holds the next tick of a schedule to come a while after its last timed one ended, rounded up.
func (h *house) wantAfter(workflow, key string, every time.Duration) {
	h.t.Helper()
	var ended *time.Time
	for _, one := range h.history(workflow, key) {
		if one.Cause != "manual" {
			ended = one.EndedAt
		}
	}
	if ended == nil {
		h.t.Fatalf("%s: it has not ended", key)
	}
	want := ended.Add(every + time.Second - time.Nanosecond).Truncate(time.Second)
	if next := h.next(workflow, key); next == nil || !next.Equal(want) {
		h.t.Errorf("%s: next at %v, want %s, %s after %s", key, next, want, every, ended)
	}
}

func TestFixedDelayFollowsTheEndOfItsTick(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("delayed", "k", delay("1s"))
	var last handed
	for i := range 3 {
		one := h.lease("delayed", 10)
		if len(one) != 1 || len(one[0].Upcoming) != 0 {
			t.Fatalf("got %+v", one)
		}
		if next := h.next("delayed", "k"); next != nil {
			t.Errorf("while it runs, the next is to come at %s", next)
		}
		if i == 1 { // a run longer than the interval
			until(t, "it has run for 2 s", func() bool { return time.Since(one[0].FiredAt) > 2*time.Second })
		}
		if i > 0 && (one[0].LastTimestamp == nil || !one[0].LastTimestamp.Equal(last.Timestamp) || *one[0].Occurrence != int64(i+1)) {
			t.Errorf("tick %d: got %+v after %+v", i, one[0], last)
		}
		last = one[0]
		h.end(last, "complete", false)
		h.wantAfter("delayed", "k", time.Second)
	}
}

func TestFixedDelayIsArmedByEveryEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	h.put("w", "failed", delay("1h"))
	one := h.lease("w", 1)[0]
	h.end(one, "fail", true)
	if next := h.next("w", "failed"); next != nil {
		t.Errorf("while it is tried again, the next is to come at %s", next)
	}
	h.end(h.lease("w", 1)[0], "fail", false)
	h.wantAfter("w", "failed", time.Hour)

	// Skipped, as a manual tick runs; one that waits for a manual tick; one that is replaced by another.
	for key, overlap := range map[string]string{"skipped": "skip", "waits": "buffer_one", "replaced": "cancel_other"} {
		p := delay("1h")
		p.Policy = &policy.Policy{Overlap: overlap}
		p.Status = "paused"
		h.put("w", key, p)
		if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
		manual := h.lease("w", 1)[0]
		if _, _, err := h.schedules.Resume(t.Context(), h.tenant, "w", key, schedules.ResumeParams{}, schedules.Changer{By: "t"}); err != nil {
			t.Fatal(err)
		}
		until(t, key+" has a timed tick", func() bool { return len(h.history("w", key)) == 2 })
		switch key {
		case "waits":
			if next := h.next("w", key); next != nil {
				t.Errorf("while it waits, the next is to come at %s", next)
			}
			h.end(manual, "complete", false)
			h.end(h.lease("w", 1)[0], "complete", false)
		case "replaced":
			if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
				t.Fatal(err)
			}
			h.end(manual, "complete", false)
			h.end(h.lease("w", 1)[0], "complete", false)
		default:
			h.end(manual, "complete", false)
		}
		h.wantAfter("w", key, time.Hour)
	}

	// A lease that ends without a word, and then an attempt that is the last.
	p := delay("1h")
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.put("w", "lost", p)
	h.lease("w", 1)
	h.exec(`UPDATE lease SET until_at = clock_timestamp()`)
	until(t, "it is given up", func() bool { return h.history("w", "lost")[0].State == "failed" })
	h.wantAfter("w", "lost", time.Hour)
}

func TestFixedDelayIsArmedByTicksThatAreNotHandedOut(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("expired", "k", func() schedules.Params {
		p := delay("1h")
		p.Policy = &policy.Policy{MaxLateness: "1m"}
		return p
	}())
	h.exec(`UPDATE cohort SET next_at = next_at - interval '10 minutes', due_at = due_at - interval '10 minutes'`)
	h.exec(`UPDATE member SET from_at = from_at - interval '10 minutes'`)
	h.put("gone", "k", delay("1h"))
	h.exec(`DELETE FROM workflow WHERE name = 'gone'`)
	h.put("left", "k", delay("1h"))
	if _, _, err := h.schedules.Skip(t.Context(), h.tenant, "left", "k", schedules.SkipParams{Count: new(1)}, schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	h.start(h.dispatch)
	for workflow, reason := range map[string]string{"expired": "expired", "gone": "no_workflow", "left": "requested"} {
		until(t, workflow+" is recorded", func() bool { return len(h.history(workflow, "k")) == 1 })
		if one := h.history(workflow, "k")[0]; one.State != "skipped" || one.Reason != reason {
			t.Errorf("%s: got %s %s", workflow, one.State, one.Reason)
		}
		h.wantAfter(workflow, "k", time.Hour)
	}
}

func TestFixedDelayChangedWhileItsTickRuns(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	by := schedules.Changer{By: "t"}
	change := map[string]func(key string){
		"retimed": func(key string) { h.put("w", key, delay("2h")) },
		"paused": func(key string) {
			if _, _, err := h.schedules.Pause(t.Context(), h.tenant, "w", key, schedules.PauseParams{}, by); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(key string) {
			if err := h.schedules.Delete(t.Context(), h.tenant, "w", key, by); err != nil {
				t.Fatal(err)
			}
		},
		"other": func(key string) { h.put("w", key, schedules.Params{Spec: calendar.Spec{Cron: []string{"0 0 1 1 *"}}}) },
		"manual": func(key string) {
			if _, _, err := h.dispatch.Control.Trigger(t.Context(), h.tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
				t.Fatal(err)
			}
			if next := h.next("w", key); next != nil {
				t.Errorf("a manual tick that was skipped armed it for %s", next)
			}
		},
	}
	for key, fn := range change {
		h.put("w", key, delay("1h"))
		running := h.lease("w", 1)[0]
		fn(key)
		h.end(running, "complete", false)
	}
	h.wantAfter("w", "retimed", 2*time.Hour)
	h.wantAfter("w", "manual", time.Hour)
	if next := h.next("w", "paused"); next != nil {
		t.Errorf("paused, and next at %s", next)
	}
	if next := h.next("w", "other"); next == nil || next.YearDay() != 1 {
		t.Errorf("a cron now, and next at %v", next)
	}
	if n := h.number(`SELECT count(*) FROM cohort c WHERE c.delay AND c.due_at IS NOT NULL AND NOT EXISTS (SELECT FROM member m WHERE m.cohort_id = c.id)`); n != 0 {
		t.Errorf("%d cohorts are armed for nobody", n)
	}
}

func TestFixedDelayCompletes(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.start(h.dispatch)
	p := delay("1s")
	p.Spec.MaxTicks = new(2)
	h.put("w", "counted", p)
	for range 2 {
		h.end(h.lease("w", 1)[0], "complete", false)
	}
	p = delay("1h")
	p.Spec.EndAt = new(time.Now().UTC().Add(30 * time.Minute).Format("2006-01-02T15:04:05Z"))
	h.put("w", "ended", p)
	h.end(h.lease("w", 1)[0], "complete", false)
	if err := h.dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"counted", "ended"} {
		s, err := h.schedules.Get(t.Context(), h.tenant, "w", key)
		if err != nil || s.Status != "completed" || s.NextAt != nil {
			t.Errorf("%s: got %s, next %v, %v", key, s.Status, s.NextAt, err)
		}
	}
	if got := len(h.history("w", "counted")); got != 2 {
		t.Errorf("%d ticks, want 2", got)
	}
}

func TestLostFixedDelayIsArmed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", delay("1h"))
	h.exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`)
	h.exec(`UPDATE schedule_state SET delay_at = now()`)
	if err := h.dispatch.RearmLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := h.next("w", "k"); next == nil || time.Until(*next) < 50*time.Minute {
		t.Errorf("next at %v", next)
	}
}

// Whatever is done to them at once, there are never two ticks of one schedule, coming or out; and none is left without.
func TestFixedDelayNeverHasTwoPendingTicks(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	other := h.process()
	h.start(h.dispatch)
	h.start(other)
	keys := make([]string, 6)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
		h.put("w", keys[i], delay("1s"))
	}
	stop := time.Now().Add(6 * time.Second)
	var work sync.WaitGroup
	for range 3 { // workers, who end ticks in all ways
		work.Go(func() {
			for time.Now().Before(stop) {
				most := 5
				body, err := h.dispatch.Leases.Lease(t.Context(), h.tenant, lease.LeaseParams{Workflows: []string{"w"}, Max: &most, Wait: "1s"}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				for _, one := range ticksOf(t, body) {
					outcome, retry := "complete", false
					if rand.IntN(3) == 0 {
						outcome, retry = "fail", rand.IntN(2) == 0
					}
					_, err := h.dispatch.Leases.Finish(t.Context(), h.tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: outcome, Retry: &retry, Error: "e"}})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range 2 { // and those who change the schedules
		work.Go(func() {
			by := schedules.Changer{By: "t"}
			for time.Now().Before(stop) {
				key := keys[rand.IntN(len(keys)/2)*2+i]
				var err error
				switch rand.IntN(6) {
				case 0:
					_, _, err = h.schedules.Pause(t.Context(), h.tenant, "w", key, schedules.PauseParams{}, by)
				case 1, 2:
					_, _, err = h.schedules.Resume(t.Context(), h.tenant, "w", key, schedules.ResumeParams{}, by)
				case 3:
					_, _, err = h.schedules.Put(t.Context(), policy.Name{Tenant: h.tenant, Workflow: "w", Key: key}, delay([]string{"1s", "2s"}[rand.IntN(2)]), "t", version.Precondition{})
				case 4:
					_, _, err = h.dispatch.Control.Trigger(t.Context(), h.tenant, "w", key, control.TriggerParams{}, once.Request{})
				default:
					err = h.bulkDelay(key)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	for _, key := range keys {
		var last *history.Tick
		for _, one := range h.history("w", key) {
			if one.Cause == "manual" {
				continue
			}
			if last != nil && (last.EndedAt == nil || one.Timestamp.Before(*last.EndedAt)) {
				t.Errorf("%s: a tick at %s, though that of %s ended at %v", key, one.Timestamp, last.Timestamp, last.EndedAt)
			}
			last = &one
		}
	}
	if n := h.number(`
		SELECT count(*)
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		JOIN cohort c ON c.shard = s.shard AND c.id = s.cohort_id
		WHERE s.status = 'active' AND (c.due_at IS NULL) = (st.delay_at IS NULL)`); n != 0 {
		t.Errorf("%d schedules are armed while a tick is out, or are neither", n)
	}
}

// bulkDelay upserts one schedule in bulk.
func (h *house) bulkDelay(key string) error {
	line := fmt.Sprintf(`{"workflow":"w","key":%q,"spec":{"intervals":[{"every":"%ds","mode":"fixed_delay"}]}}`, key, 1+rand.IntN(2))
	sum, err := h.inBulk.Upsert(h.t.Context(), h.tenant, "t", io.NopCloser(strings.NewReader(line+"\n")), func([]bulk.Result) error { return nil })
	if err == nil && sum.Errors > 0 {
		return fmt.Errorf("bulk: %+v", sum)
	}
	return err
}

func ticksOf(t *testing.T, body []byte) []handed {
	t.Helper()
	var answer struct{ Ticks []handed }
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Errorf("%v in %s", err, body)
	}
	return answer.Ticks
}
