package finish_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
)

func next(h *dispatchtest.Carillon, workflow, key string) *time.Time {
	h.T.Helper()
	s, err := h.Schedules.Get(h.T.Context(), h.Tenant, workflow, key)
	if err != nil {
		h.T.Fatal(err)
	}
	return s.NextAt
}

// intervalAfter returns the time of the tick that follows the end of another by an interval: rounded up.
func intervalAfter(ended time.Time, every time.Duration) time.Time {
	return ended.Add(every + time.Second - time.Nanosecond).Truncate(time.Second)
}

// wantAfter checks that the next tick of a schedule comes one interval (every) after the end of its last timed tick, rounded up.
func wantAfter(h *dispatchtest.Carillon, workflow, key string, every time.Duration) {
	h.T.Helper()
	var ended *time.Time
	for _, one := range h.History(workflow, key) {
		if one.Cause != "manual" {
			ended = one.EndedAt
		}
	}
	if ended == nil {
		h.T.Fatalf("%s: it has not ended", key)
	}
	want := intervalAfter(*ended, every)
	if next := next(h, workflow, key); next == nil || !next.Equal(want) {
		h.T.Errorf("%s: next at %v, want %s, %s after %s", key, next, want, every, ended)
	}
}

func TestFixedDelayFollowsTheEndOfItsTick(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("delayed", "k", dispatchtest.Delay("1s"))
	var last dispatchtest.Handed
	for i := range 4 {
		one := h.Lease("delayed", 10)
		if len(one) != 1 || len(one[0].Upcoming) != 0 {
			t.Fatalf("got %+v", one)
		}
		if next := next(h, "delayed", "k"); next != nil {
			t.Errorf("while it runs, the next is to come at %s", next)
		}
		if i == 1 { // a run longer than the interval
			dispatchtest.Until(t, "it has run for 2 s", func() bool { return time.Since(one[0].FiredAt) > 2*time.Second })
		}
		if i > 0 && (one[0].LastTimestamp == nil || !one[0].LastTimestamp.Equal(last.Timestamp) || *one[0].Occurrence != int64(i+1)) {
			t.Errorf("tick %d: got %+v after %+v", i, one[0], last)
		}
		if i > 0 {
			if ended := h.History("delayed", "k")[i-1].EndedAt; !one[0].Timestamp.Equal(intervalAfter(*ended, time.Second)) {
				t.Errorf("tick %d is of %s, and the one before ended at %s", i, one[0].Timestamp, ended)
			}
		}
		last = one[0]
		h.End(last, "complete", false)
	}
}

func TestFixedDelayIsArmedByEveryEnd(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	h.Put("w", "failed", dispatchtest.Delay("1h"))
	one := h.Lease("w", 1)[0]
	h.End(one, "fail", true)
	if next := next(h, "w", "failed"); next != nil {
		t.Errorf("while it is tried again, the next is to come at %s", next)
	}
	h.End(h.Lease("w", 1)[0], "fail", false)
	wantAfter(h, "w", "failed", time.Hour)

	// Skipped, as a manual tick runs; one that waits for a manual tick; one that is replaced by another.
	for key, overlap := range map[string]string{"skipped": "skip", "waits": "buffer_one", "replaced": "cancel_other"} {
		p := dispatchtest.Delay("1h")
		p.Policy = &policy.Policy{Overlap: overlap}
		p.Status = "paused"
		h.Put("w", key, p)
		if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
		manual := h.Lease("w", 1)[0]
		if _, _, err := h.Schedules.Resume(t.Context(), h.Tenant, "w", key, schedules.ResumeParams{}, schedules.Changer{By: "t"}); err != nil {
			t.Fatal(err)
		}
		dispatchtest.Until(t, key+" has a timed tick", func() bool { return len(h.History("w", key)) == 2 })
		switch key {
		case "waits":
			if next := next(h, "w", key); next != nil {
				t.Errorf("while it waits, the next is to come at %s", next)
			}
			h.End(manual, "complete", false)
			h.End(h.Lease("w", 1)[0], "complete", false)
		case "replaced":
			if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
				t.Fatal(err)
			}
			h.End(manual, "complete", false)
			h.End(h.Lease("w", 1)[0], "complete", false)
		default:
			h.End(manual, "complete", false)
		}
		wantAfter(h, "w", key, time.Hour)
	}

	// A lease that ends without a word, and then an attempt that is the last.
	p := dispatchtest.Delay("1h")
	p.Delivery = &policy.Delivery{MaxAttempts: new(1)}
	h.Put("w", "lost", p)
	h.Lease("w", 1)
	h.Exec(`UPDATE lease SET until_at = clock_timestamp()`)
	dispatchtest.Until(t, "it is given up", func() bool { return h.History("w", "lost")[0].State == "failed" })
	wantAfter(h, "w", "lost", time.Hour)
}

func TestFixedDelayIsArmedByTicksThatAreNotHandedOut(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("expired", "k", func() schedules.Params {
		p := dispatchtest.Delay("1h")
		p.Policy = &policy.Policy{MaxLateness: "1m"}
		return p
	}())
	h.Exec(`UPDATE cohort SET next_at = next_at - interval '10 minutes', due_at = due_at - interval '10 minutes'`)
	h.Exec(`UPDATE member SET from_at = from_at - interval '10 minutes'`)
	h.Put("gone", "k", dispatchtest.Delay("1h"))
	h.Exec(`DELETE FROM workflow WHERE name = 'gone'`)
	// Its first tick is far ahead while it is skipped, however slow the machine is, and due afterwards.
	late := dispatchtest.Delay("1h")
	late.Spec.StartAt = new(time.Now().Add(30 * time.Minute).UTC().Truncate(time.Second).Format(time.RFC3339))
	h.Put("left", "k", late)
	if _, _, err := h.Schedules.Skip(t.Context(), h.Tenant, "left", "k", schedules.SkipParams{Count: new(1)}, schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	h.Exec(`UPDATE cohort SET next_at = next_at - interval '40 minutes', due_at = due_at - interval '40 minutes' WHERE workflow = 'left'`)
	h.Exec(`UPDATE member SET from_at = from_at - interval '40 minutes' WHERE cohort_id = (SELECT id FROM cohort WHERE workflow = 'left')`)
	h.Exec(`UPDATE schedule_state SET skips = ARRAY(SELECT s - interval '40 minutes' FROM unnest(skips) AS s) WHERE skips IS NOT NULL`)
	h.Start(h.Dispatch)
	for workflow, reason := range map[string]string{"expired": "expired", "gone": "no_workflow", "left": "requested"} {
		dispatchtest.Until(t, workflow+" is recorded", func() bool { return len(h.History(workflow, "k")) == 1 })
		if one := h.History(workflow, "k")[0]; one.State != "skipped" || one.Reason != reason {
			t.Errorf("%s: got %s %s", workflow, one.State, one.Reason)
		}
		wantAfter(h, workflow, "k", time.Hour)
	}
}

func TestFixedDelayChangedWhileItsTickRuns(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	by := schedules.Changer{By: "t"}
	change := map[string]func(key string){
		"retimed": func(key string) { h.Put("w", key, dispatchtest.Delay("2h")) },
		"paused": func(key string) {
			if _, _, err := h.Schedules.Pause(t.Context(), h.Tenant, "w", key, schedules.PauseParams{}, by); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(key string) {
			if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", key, by); err != nil {
				t.Fatal(err)
			}
		},
		"other": func(key string) { h.Put("w", key, schedules.Params{Spec: calendar.Spec{Cron: []string{"0 0 1 1 *"}}}) },
		"manual": func(key string) {
			if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", key, control.TriggerParams{}, once.Request{}); err != nil {
				t.Fatal(err)
			}
			if next := next(h, "w", key); next != nil {
				t.Errorf("a manual tick that was skipped armed it for %s", next)
			}
		},
	}
	for key, fn := range change {
		h.Put("w", key, dispatchtest.Delay("1h"))
		running := h.Lease("w", 1)[0]
		fn(key)
		h.End(running, "complete", false)
	}
	wantAfter(h, "w", "retimed", 2*time.Hour)
	wantAfter(h, "w", "manual", time.Hour)
	if next := next(h, "w", "paused"); next != nil {
		t.Errorf("paused, and next at %s", next)
	}
	if next := next(h, "w", "other"); next == nil || next.YearDay() != 1 {
		t.Errorf("a cron now, and next at %v", next)
	}
	if n := h.Number(`SELECT count(*) FROM cohort c WHERE c.delay AND c.due_at IS NOT NULL AND NOT EXISTS (SELECT FROM member m WHERE m.cohort_id = c.id)`); n != 0 {
		t.Errorf("%d cohorts are armed for nobody", n)
	}
}

func TestFixedDelayCompletes(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	p := dispatchtest.Delay("1s")
	p.Spec.MaxTicks = new(2)
	h.Put("w", "counted", p)
	for range 2 {
		h.End(h.Lease("w", 1)[0], "complete", false)
	}
	p = dispatchtest.Delay("1h")
	p.Spec.EndAt = new(time.Now().UTC().Add(30 * time.Minute).Format("2006-01-02T15:04:05Z"))
	h.Put("w", "ended", p)
	h.End(h.Lease("w", 1)[0], "complete", false)
	if err := h.Dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"counted", "ended"} {
		s, err := h.Schedules.Get(t.Context(), h.Tenant, "w", key)
		if err != nil || s.Status != "completed" || s.NextAt != nil {
			t.Errorf("%s: got %s, next %v, %v", key, s.Status, s.NextAt, err)
		}
	}
	if got := len(h.History("w", "counted")); got != 2 {
		t.Errorf("%d ticks, want 2", got)
	}
}

func TestLostFixedDelayIsArmed(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.Delay("1h"))
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`)
	h.Exec(`UPDATE schedule_state SET delay_at = now()`)
	if err := h.Dispatch.RearmLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := next(h, "w", "k"); next == nil || time.Until(*next) < 50*time.Minute {
		t.Errorf("next at %v", next)
	}
}

// Whatever is done to schedules concurrently, none ever has two ticks that are coming or handed out, and none is left without a tick.
func TestFixedDelayNeverHasTwoPendingTicks(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	other := h.Process()
	h.Start(h.Dispatch)
	h.Start(other)
	keys := make([]string, 6)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
		h.Put("w", keys[i], dispatchtest.Delay("1s"))
	}
	stop := time.Now().Add(6 * time.Second)
	var work sync.WaitGroup
	for range 3 { // workers, who end ticks in all ways
		work.Go(func() {
			for time.Now().Before(stop) {
				most := 5
				body, err := h.Dispatch.Leases.Lease(t.Context(), h.Tenant, lease.LeaseParams{Workflows: []string{"w"}, Max: &most, Wait: "1s"}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				for _, one := range dispatchtest.TicksOf(t, body) {
					outcome, retry := "complete", false
					if rand.IntN(3) == 0 {
						outcome, retry = "fail", rand.IntN(2) == 0
					}
					_, err := h.Dispatch.Leases.Finish(t.Context(), h.Tenant, []lease.Finish{{TickID: one.TickID, LeaseToken: one.LeaseToken, Outcome: outcome, Retry: &retry, Error: "e"}})
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
					_, _, err = h.Schedules.Pause(t.Context(), h.Tenant, "w", key, schedules.PauseParams{}, by)
				case 1, 2:
					_, _, err = h.Schedules.Resume(t.Context(), h.Tenant, "w", key, schedules.ResumeParams{}, by)
				case 3:
					_, _, err = h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Tenant, Workflow: "w", Key: key}, dispatchtest.Delay([]string{"1s", "2s"}[rand.IntN(2)]), "t", version.Precondition{})
				case 4:
					_, _, err = h.Dispatch.Control.Trigger(t.Context(), h.Tenant, "w", key, control.TriggerParams{}, once.Request{})
				default:
					err = bulkDelay(h, key)
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
		for _, one := range h.History("w", key) {
			if one.Cause == "manual" {
				continue
			}
			if last != nil && (last.EndedAt == nil || one.Timestamp.Before(*last.EndedAt)) {
				t.Errorf("%s: a tick at %s, though that of %s ended at %v", key, one.Timestamp, last.Timestamp, last.EndedAt)
			}
			last = &one
		}
	}
	if n := h.Number(`
		SELECT count(*)
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		JOIN cohort c ON c.shard = s.shard AND c.id = s.cohort_id
		WHERE s.status = 'active' AND (c.due_at IS NULL) = (st.delay_at IS NULL)`); n != 0 {
		t.Errorf("%d schedules are armed while a tick is out, or are neither", n)
	}
}

// bulkDelay upserts one schedule in bulk.
func bulkDelay(h *dispatchtest.Carillon, key string) error {
	line := fmt.Sprintf(`{"workflow":"w","key":%q,"spec":{"intervals":[{"every":"%ds","mode":"fixed_delay"}]}}`, key, 1+rand.IntN(2))
	sum, err := h.InBulk.Upsert(h.T.Context(), h.Tenant, "t", io.NopCloser(strings.NewReader(line+"\n")), func([]bulk.Result) error { return nil })
	if err == nil && sum.Errors > 0 {
		return fmt.Errorf("bulk: %+v", sum)
	}
	return err
}

// followingDelay fires at once, and then an hour after each tick has ended, in the zone of its key.
func followingDelay() schedules.Params {
	return schedules.Params{Spec: calendar.Spec{
		Timezone: "@subject", MaxTicks: new(2), Intervals: []calendar.Interval{{Every: "1h", Mode: "fixed_delay", First: "now"}},
	}}
}

func TestAProfileThatHandsOutATickOfFixedDelayWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	h.Put("w", "k", followingDelay())
	dispatchtest.Until(t, "its tick is due", func() bool { return h.Number(`SELECT count(*) FROM cohort WHERE next_at <= clock_timestamp()`) == 1 })
	at := h.At(`SELECT next_at FROM cohort`)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Etc/UTC"})
	if n := h.Number(`SELECT count(*) FROM schedule_state WHERE delay_at = $1 AND delay_left = 1`, at); n != 1 {
		t.Errorf("the tick of %s was handed out, and the state does not say so", at)
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE due_at IS NOT NULL`); n != 0 {
		t.Error("another tick is to come before that one has ended")
	}
	if err := h.Dispatch.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, chunk := range h.Chunks() {
		if err := h.Dispatch.Open(t.Context(), chunk); err != nil {
			t.Fatal(err)
		}
	}
	h.End(h.Lease("w", 1)[0], "complete", false)
	wantAfter(h, "w", "k", time.Hour)
	if n := h.Number(`SELECT ticks_left FROM schedule`); n != 1 {
		t.Errorf("of two ticks, one was handed out and %d are left", n)
	}
}

// A change of a profile takes into account the end of a tick that is written at the same time.
func TestAProfileWaitsForTheEndOfATickOfFixedDelay(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	h.Put("w", "k", followingDelay())
	h.Exec(`UPDATE schedule_state SET delay_at = (SELECT next_at FROM cohort), delay_left = 1`)
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`)
	tx, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `UPDATE schedule_state SET delay_at = NULL`); err != nil { // as the end of the tick does
		t.Fatal(err)
	}
	changed := make(chan error, 1)
	go func() {
		_, _, _, err := h.Subjects.PutSubject(t.Context(), h.Tenant, "k", subjects.SubjectParams{Timezone: "Etc/UTC"}, "tester", version.Precondition{})
		changed <- err
	}()
	dispatchtest.Until(t, "the change has come to the state", func() bool {
		return len(changed) > 0 || h.Number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE next_at IS NOT NULL AND due_at IS NOT NULL`); n != 1 {
		t.Error("no tick is to come, though none is out")
	}
}
