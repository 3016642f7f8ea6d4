package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// Each test here is named after another scheduler, and does what that scheduler offers with Carillon's calls. docs/coming-from.md shows
// the same calls.

// lease leases n ticks of workflow w, as a worker does.
func lease(t *testing.T, c *carillon.Client, n int) []anyTick {
	t.Helper()
	var all []anyTick
	for deadline := time.Now().Add(time.Minute); len(all) < n && time.Now().Before(deadline); {
		got := must[[]anyTick](t)(c.Ticks.Lease(t.Context(), carillon.LeaseParams{Workflows: []string{"w"}, Max: n - len(all), Wait: 10 * time.Second, Lease: time.Minute, Worker: "parity"}))
		all = append(all, got...)
	}
	if len(all) < n {
		t.Fatalf("leased %d ticks, want %d", len(all), n)
	}
	return all
}

func complete(t *testing.T, c *carillon.Client, ticks ...anyTick) {
	t.Helper()
	for _, tick := range ticks {
		if err := c.Ticks.Complete(t.Context(), tick.TickID, tick.LeaseToken, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// trigger fires a tick of w/k now.
func trigger(t *testing.T, c *carillon.Client) carillon.TickRecord {
	t.Helper()
	return must[carillon.TickRecord](t)(c.Schedules.Trigger(t.Context(), "w", "k", carillon.TriggerParams{}))
}

func TestWaymark(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	put := must[carillon.Schedule](t)

	t.Log("a schedule by workflow and name, with cron or interval, inputs and jitter")
	k := put(c.Schedules.Put(ctx, "w", "k", carillon.Params{Spec: carillon.Cron("0 8 * * *"), Payload: map[string]string{"user": "ann"}}))
	interval := put(c.Schedules.Put(ctx, "w", "every", carillon.Params{Spec: carillon.Every(90 * time.Minute).WithJitter(30 * time.Second)}))
	if k.Spec.Cron[0] != "0 8 * * *" || string(k.Payload) != `{"user":"ann"}` || interval.Spec.Intervals[0].Every != "1h30m" || interval.Spec.Jitter != "30s" {
		t.Errorf("got %+v and %+v", k, interval)
	}

	t.Log("pause, resume, delete, and a list by status")
	put(c.Schedules.Pause(ctx, "w", "every", carillon.PauseParams{}))
	if got := gather(t, c.Schedules.List(ctx, carillon.Filter{Workflow: "w", Status: "paused"})); len(got) != 1 || got[0].Key != "every" {
		t.Errorf("got %+v", got)
	}
	if got := put(c.Schedules.Resume(ctx, "w", "every", carillon.ResumeParams{})); got.Status != "active" {
		t.Errorf("got %+v", got)
	}
	if err := c.Schedules.Delete(ctx, "w", "every", carillon.DeleteParams{}); err != nil {
		t.Error(err)
	}

	t.Log("ticks do not overlap unless the policy says so")
	trigger(t, c)
	running := lease(t, c, 1)
	if second := until(t, c, trigger(t, c).TickID, ended); second.State != "skipped" || second.Reason != "overlap" {
		t.Errorf("got %+v", second)
	}
	complete(t, c, running...)

	t.Log("a tick has the version of the workflow that is registered when it fires")
	for _, version := range []string{"v1", "v2"} {
		must[carillon.SyncReport](t)(program(c, "waymark", version, "of-"+version).Sync(ctx, carillon.KeepUnlisted))
		trigger(t, c)
		got := lease(t, c, 1)
		if got[0].WorkflowVersion != version || string(got[0].Payload) != `{"user":"ann"}` {
			t.Errorf("got version %s, want %s", got[0].WorkflowVersion, version)
		}
		complete(t, c, got...)
	}
}

func ended(r carillon.TickRecord) bool { return r.EndedAt != nil }

func TestPyWorkflow(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c := client(t)

	t.Log("declared beside the handler: cron, intervals from now and after each run, calendars; declaring returns the ids")
	app := program(c, "pyworkflow", "v1")
	var mu sync.Mutex
	runs := map[string]int{}
	carillon.Handle(app, "w", func(_ context.Context, tick anyTick) error {
		mu.Lock()
		defer mu.Unlock()
		runs[tick.Key]++
		if runs["now"] > 0 && runs["after"] > 1 {
			stop()
		}
		return nil
	})
	declared := []*carillon.Declared{
		app.Declare("w", "cron", carillon.Cron("0 17 * * 1-5").In("America/New_York")),
		app.Declare("w", "now", carillon.Every(time.Hour).FirstNow()),
		app.Declare("w", "after", carillon.Every(time.Second).FromEnd().FirstNow()),
		app.Declare("w", "calendar", carillon.Calendar(carillon.CalendarFields{DayOfMonth: "1", Hour: "9"}, carillon.CalendarFields{DayOfMonth: "15", Hour: "17"})),
	}
	if err := app.Run(ctx); err != nil {
		t.Fatal(err)
	}
	ctx = t.Context()
	for _, d := range declared {
		if s := must[carillon.Schedule](t)(c.Schedules.Get(ctx, d.Workflow, d.Key)); d.ID == "" || s.ID != d.ID {
			t.Errorf("%s has the id %s, and declaring said %q", d.Key, s.ID, d.ID)
		}
	}

	t.Log("a list with counts")
	for _, s := range gather(t, c.Schedules.List(ctx, carillon.Filter{Workflow: "w"})) {
		if want := int64(runs[s.Key]); s.Stats.Fired < want || s.Stats.Succeeded < min(want, 1) {
			t.Errorf("%s ran %d times: got %+v", s.Key, want, s.Stats)
		}
	}

	t.Log("the overlap policies: what becomes of a second tick while the first runs")
	for policy, want := range map[string]string{"skip": "skipped", "buffer_one": "scheduled", "buffer_all": "scheduled", "allow_all": "running", "cancel_other": "scheduled"} {
		c := client(t)
		must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "k", carillon.Params{Spec: daily(3), Policy: carillon.Policy{Overlap: policy}}))
		trigger(t, c)
		first := lease(t, c, 1)[0]
		second := trigger(t, c)
		if want == "running" {
			lease(t, c, 1)
		}
		if got := until(t, c, second.TickID, func(r carillon.TickRecord) bool { return r.State == want }); got.State != want {
			t.Errorf("%s: the second tick is %s, want %s", policy, got.State, want)
		}
		_, err := c.Ticks.Heartbeat(ctx, first.TickID, first.LeaseToken, time.Minute)
		if cancelled := err != nil; cancelled != (policy == "cancel_other") {
			t.Errorf("%s: the first tick's heartbeat: %v", policy, err)
		}
		if policy == "cancel_other" { // the second runs when the worker has stopped the first
			if err := c.Ticks.Fail(ctx, first.TickID, first.LeaseToken, carillon.ErrCancelled); err != nil && !errors.Is(err, carillon.ErrConflict) {
				t.Error(err)
			}
			if got := lease(t, c, 1)[0]; got.TickID != second.TickID {
				t.Errorf("got %+v", got)
			}
		}
	}

	t.Log("a backfill, whose ticks are found by their operation and their cause")
	from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "back", "k", carillon.Params{Spec: carillon.Cron("0 8 * * *"), Policy: carillon.Policy{Overlap: "allow_all"}}))
	op := must[carillon.Operation](t)(c.Schedules.Backfill(ctx, "back", "k", carillon.BackfillParams{From: from, To: from.AddDate(0, 0, 3)}))
	op = must[carillon.Operation](t)(c.Operations.Wait(ctx, op.ID, nil))
	made := gather(t, c.Ticks.List(ctx, carillon.TickScope{Operation: op.ID}, carillon.TickFilter{}))
	if len(made) != 3 || made[0].Cause != "backfill" || len(gather(t, c.Ticks.List(ctx, carillon.TickScope{Workflow: "back", Cause: "backfill"}, carillon.TickFilter{}))) != 3 {
		t.Errorf("the operation %+v made %+v", op, made)
	}
}

func TestPolos(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	put := must[carillon.Schedule](t)

	t.Log("cron on the workflow, with and without a zone; create is update by workflow and key; the key may be global")
	app := program(c, "polos", "v1")
	app.Declare("w", carillon.Global, carillon.Cron("0 3 * * *"))
	app.Declare("w", "zoned", carillon.Cron("0 8 * * *").In("Asia/Kolkata"))
	must[carillon.SyncReport](t)(app.Sync(ctx, carillon.PauseUnlisted))
	if got := put(c.Schedules.Get(ctx, "w", "")); got.Key != "global" || got.TimezoneInForce != "UTC" {
		t.Errorf("got %+v", got)
	}
	if got := put(c.Schedules.Get(ctx, "w", "zoned")); got.NextLocal == nil || got.NextLocal.Format("15:04 -0700") != "08:00 +0530" {
		t.Errorf("got %+v", got)
	}
	first := put(c.Schedules.Put(ctx, "w", "user_1", carillon.Params{Spec: carillon.Cron("0 8 * * *")}))
	again := put(c.Schedules.Put(ctx, "w", "user_1", carillon.Params{Spec: carillon.Cron("0 9 * * *")}))
	if again.ID != first.ID || again.Version != first.Version+1 {
		t.Errorf("got %+v after %+v", again, first)
	}

	t.Log("what a handler receives: timestamp, last_timestamp, timezone, schedule_id, key, upcoming")
	user := put(c.Schedules.Put(ctx, "w", "user_2", carillon.Params{Spec: carillon.Every(time.Second).In("Asia/Tokyo"), Policy: carillon.Policy{Overlap: "allow_all", Missed: "all"}}))
	ticks := lease(t, c, 2)
	slices.SortFunc(ticks, func(a, b anyTick) int { return a.Timestamp.Compare(b.Timestamp) })
	before, tick := ticks[0], ticks[1]
	if tick.ScheduleID != user.ID || tick.Key != "user_2" || tick.Timezone != "Asia/Tokyo" || tick.LocalTime.Format("-0700") != "+0900" || len(tick.Upcoming) != 5 ||
		!tick.Upcoming[0].Equal(tick.Timestamp.Add(time.Second)) || tick.LastTimestamp == nil || !tick.LastTimestamp.Equal(before.Timestamp) {
		t.Errorf("got %+v after %+v", tick, before)
	}
}

func TestPgwerk(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	put, sync := must[carillon.Schedule](t), must[carillon.SyncReport](t)

	t.Log("stage and sync, with counts, for each policy of unlisted schedules")
	for _, unlisted := range []carillon.Unlisted{carillon.KeepUnlisted, carillon.PauseUnlisted, carillon.DeleteUnlisted} {
		name := "werk-" + string(unlisted)
		if got := sync(program(c, name, "v1", name+"-a", name+"-b").Sync(ctx, unlisted)); got.Inserted != 2 {
			t.Errorf("%s: got %+v", unlisted, got)
		}
		sync(program(c, name, "v1", name+"-a").Sync(ctx, unlisted))
	}
	if got := fmt.Sprint(statuses(t, c)); got != "map[werk-delete-a:active werk-keep-a:active werk-keep-b:active werk-pause-a:active werk-pause-b:paused by sync]" {
		t.Errorf("got %s", got)
	}

	t.Log("queue, timeout, retention, and labels that the handler receives")
	put(c.Schedules.Put(ctx, "w", "k", carillon.Params{
		Spec: carillon.Cron("0 8 * * *"), Labels: map[string]string{"plan": "pro"}, Policy: carillon.Policy{Overlap: "allow_all"},
		Delivery: carillon.Delivery{Queue: "mail", Timeout: "5m", Retention: carillon.Retention{Succeeded: "7d", Failed: "14d"}},
	}))
	trigger(t, c)
	other, err := c.Ticks.Lease(ctx, carillon.LeaseParams{Workflows: []string{"w"}, Queues: []string{"default"}, Max: 1, Lease: time.Minute})
	got := must[[]anyTick](t)(c.Ticks.Lease(ctx, carillon.LeaseParams{Workflows: []string{"w"}, Queues: []string{"mail"}, Max: 1, Wait: 30 * time.Second, Lease: time.Minute}))
	if err != nil || len(other) != 0 || len(got) != 1 || got[0].Labels["plan"] != "pro" || got[0].Timeout != "300s" {
		t.Fatalf("got %+v, and of another queue %+v, %v", got, other, err)
	}
	complete(t, c, got...)

	t.Log("schedule_at, schedule_in")
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	if got := put(c.Schedules.Put(ctx, "w", "at", carillon.Params{Spec: carillon.At(at)})); got.NextAt == nil || !got.NextAt.Equal(at) {
		t.Errorf("got %+v", got)
	}
	if got := put(c.Schedules.Put(ctx, "w", "in", carillon.Params{Spec: carillon.In(time.Hour)})); got.NextAt == nil || got.NextAt.Sub(at).Abs() > time.Minute {
		t.Errorf("got %+v", got)
	}
	if got := must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{In: "1h"})); got.State != "scheduled" || got.DueAt == nil {
		t.Errorf("got %+v", got)
	}

	t.Log("update, pause, resume, delete, get")
	if got := put(c.Schedules.Patch(ctx, "w", "k", carillon.PatchParams{Merge: json.RawMessage(`{"delivery":{"queue":"slow"}}`)})); got.Delivery.Queue != "slow" || got.Delivery.Timeout != "5m" {
		t.Errorf("got %+v", got)
	}
	put(c.Schedules.Pause(ctx, "w", "k", carillon.PauseParams{}))
	put(c.Schedules.Resume(ctx, "w", "k", carillon.ResumeParams{}))
	if err := c.Schedules.Delete(ctx, "w", "at", carillon.DeleteParams{}); err != nil {
		t.Error(err)
	}

	t.Log("idempotency by name and tick: one nominal time of a schedule has one tick")
	from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	ids := map[string]bool{}
	for range 2 {
		op := must[carillon.Operation](t)(c.Schedules.Backfill(ctx, "w", "k", carillon.BackfillParams{From: from, To: from.AddDate(0, 0, 3), Overlap: "allow_all"}))
		must[carillon.Operation](t)(c.Operations.Wait(ctx, op.ID, nil))
		for _, tick := range gather(t, c.Ticks.List(ctx, carillon.TickScope{Workflow: "w", Key: "k", Cause: "backfill"}, carillon.TickFilter{})) {
			ids[tick.TickID] = true
		}
	}
	if len(ids) != 3 {
		t.Errorf("two backfills of three days made %d ticks", len(ids))
	}
}
