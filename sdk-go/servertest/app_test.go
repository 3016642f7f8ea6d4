package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

var quiet = slog.New(slog.DiscardHandler)

type anyTick = carillon.Tick[json.RawMessage]

func daily(hour int) carillon.Spec {
	return carillon.Spec{Cron: carillon.Strings{fmt.Sprintf("0 %d * * *", hour)}}
}

// program returns an app of a name and version that declares the keys of workflow w.
func program(c *carillon.Client, name, version string, keys ...string) *carillon.App {
	app := carillon.NewApp(c, carillon.AppConfig{Name: name, Version: version, Worker: carillon.WorkerConfig{Log: quiet}})
	for _, key := range keys {
		app.Declare("w", key, daily(8), carillon.Labels{"team": "growth"})
	}
	return app
}

// statuses returns "key status paused_by" of the schedules of workflow w.
func statuses(t *testing.T, c *carillon.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, s := range gather(t, c.Schedules.List(t.Context(), carillon.Filter{Workflow: "w"})) {
		all[s.Key] = s.Status
		if s.PausedBy != "" {
			all[s.Key] += " by " + s.PausedBy
		}
	}
	return all
}

func wantStatuses(t *testing.T, c *carillon.Client, want string) {
	t.Helper()
	if got := fmt.Sprint(statuses(t, c)); got != "map["+want+"]" {
		t.Errorf("got %s, want map[%s]", got, want)
	}
}

func TestAppSyncsWhatItDeclares(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	sync := must[carillon.SyncReport](t)
	app := program(c, "shop", "v1")
	a := app.Declare("w", "a", daily(8), carillon.Labels{"team": "growth"}, carillon.Payload(map[string]int{"n": 1}))
	b := app.Declare("w", carillon.Global, daily(9), carillon.Policy{Overlap: "allow_all"}, carillon.Delivery{Queue: "slow"}, carillon.Note("why"), carillon.For("ann"))
	if got := sync(app.Sync(ctx, carillon.PauseUnlisted, carillon.SyncOptions{DryRun: true})); got.Inserted != 2 || a.ID != "" || len(statuses(t, c)) != 0 {
		t.Errorf("a dry run: got %+v, id %q", got, a.ID)
	}
	if got := sync(app.Sync(ctx, carillon.PauseUnlisted)); got.SyncSummary != (carillon.SyncSummary{Inserted: 2}) {
		t.Errorf("got %+v", got)
	}
	stored := must[carillon.Schedule](t)(c.Schedules.Get(ctx, "w", carillon.Global))
	if a.ID == "" || b.ID != stored.ID || b.Result != "inserted" || stored.Policy.Overlap != "allow_all" || stored.Delivery.Queue != "slow" || stored.Note != "why" || stored.Subject != "ann" {
		t.Errorf("got %+v, stored %+v", b, stored)
	}
	if got := must[carillon.Schedule](t)(c.Schedules.Get(ctx, "w", "a")); got.Labels["team"] != "growth" || got.Labels["carillon.program"] != "shop" || string(got.Payload) != `{"n":1}` {
		t.Errorf("got %+v", got)
	}
	if got := sync(app.Sync(ctx, carillon.PauseUnlisted)); got.SyncSummary != (carillon.SyncSummary{Unchanged: 2}) || a.Result != "unchanged" {
		t.Errorf("the same again: got %+v", got)
	}
	changed := program(c, "shop", "v2")
	changed.Declare("w", "a", daily(10))
	if got := sync(changed.Sync(ctx, carillon.DeleteUnlisted)); got.SyncSummary != (carillon.SyncSummary{Updated: 1, Reconciled: 1}) {
		t.Errorf("a change: got %+v", got)
	}
	_, err := program(c, "shop", "v3").Sync(ctx, carillon.DeleteUnlisted, carillon.SyncOptions{MaxChange: "50%"})
	if !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("more than MaxChange: got %v", err)
	}
	wantStatuses(t, c, "a:active")
}

// A deployment that is rolled back lists again what its successor did not list: nothing stays paused but what a person paused.
func TestRollbackOfAProgramLeavesNothingPaused(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	sync := must[carillon.SyncReport](t)
	sync(program(c, "shop", "v1", "a", "b", "c").Sync(ctx, carillon.PauseUnlisted))
	must[carillon.Schedule](t)(c.Schedules.Pause(ctx, "w", "c", carillon.PauseParams{Note: "by a person"}))
	if got := sync(program(c, "shop", "v2", "a", "d").Sync(ctx, carillon.PauseUnlisted)); got.Inserted != 1 || got.Reconciled != 1 {
		t.Errorf("the next version: got %+v", got)
	}
	wantStatuses(t, c, "a:active b:paused by sync c:paused d:active")
	if got := sync(program(c, "shop", "v1", "a", "b", "c").Sync(ctx, carillon.PauseUnlisted)); got.Resumed != 1 || got.Reconciled != 1 {
		t.Errorf("the rollback: got %+v", got)
	}
	wantStatuses(t, c, "a:active b:active c:paused d:paused by sync")
	sync(program(c, "shop", "v3", "a", "b", "c").Sync(ctx, carillon.KeepUnlisted))
	wantStatuses(t, c, "a:active b:active c:paused d:paused by sync")
}

// Two programs of one tenant never change each other's schedules, not even if both declare the same one.
func TestTwoProgramsNeverTouchEachOthersSchedules(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	sync := must[carillon.SyncReport](t)
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "byhand", carillon.Params{Spec: daily(7)}))
	sync(program(c, "shop", "v1", "a", "b").Sync(ctx, carillon.PauseUnlisted))
	sync(program(c, "crm", "v1", "x", "y").Sync(ctx, carillon.PauseUnlisted))
	before := map[string]int64{}
	for _, s := range gather(t, c.Schedules.List(ctx, carillon.Filter{Workflow: "w"})) {
		before[s.Key] = s.Version
	}
	sync(program(c, "crm", "v2", "x").Sync(ctx, carillon.DeleteUnlisted))
	wantStatuses(t, c, "a:active b:active byhand:active x:active")

	both := program(c, "crm", "v3", "x")
	mine := both.Declare("w", "new", daily(8))
	theirs := both.Declare("w", "a", daily(12))
	report, err := both.Sync(ctx, carillon.DeleteUnlisted)
	refused := (*carillon.DeclareError)(nil)
	if !errors.As(err, &refused) || len(refused.Failed) != 1 || refused.Failed[0].Error.Code != "claimed" || !errors.Is(err, carillon.ErrConflict) || report.Errors != 1 {
		t.Errorf("a schedule of another program: got %+v, %v", report, err)
	}
	if mine.Result != "inserted" || theirs.Result != "error" || theirs.ID != "" {
		t.Errorf("got %+v and %+v", mine, theirs)
	}
	for _, s := range gather(t, c.Schedules.List(ctx, carillon.Filter{Workflow: "w"})) {
		if version, ok := before[s.Key]; ok && s.Version != version {
			t.Errorf("%s went from version %d to %d", s.Key, version, s.Version)
		}
	}
	// A schedule that no program declares belongs to the first one that does.
	if got := sync(program(c, "shop", "v2", "a", "b", "byhand").Sync(ctx, carillon.PauseUnlisted)); got.Updated != 1 || got.Unchanged != 2 {
		t.Errorf("got %+v", got)
	}
}

// A sync registers the program's version and leaves what operators set.
func TestSyncRegistersTheVersionOfTheProgram(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	must[carillon.Workflow](t)(c.Workflows.Put(ctx, "w", carillon.WorkflowParams{Version: "v0", MaxRunning: 7, Rate: &carillon.Rate{PerSecond: 5}}))
	must[carillon.Workflow](t)(c.Workflows.Hold(ctx, "w"))
	app := program(c, "shop", "v1", "a")
	carillon.Handle(app, "handled", func(context.Context, anyTick) error { return nil })
	must[carillon.SyncReport](t)(app.Sync(ctx, carillon.PauseUnlisted))
	w := must[carillon.Workflow](t)(c.Workflows.Get(ctx, "w"))
	if w.Version != "v1" || w.State != "held" || w.MaxRunning != 7 || w.Rate == nil || w.Rate.PerSecond != 5 {
		t.Errorf("got %+v", w)
	}
	if got := must[carillon.Workflow](t)(c.Workflows.Get(ctx, "handled")); got.Version != "v1" {
		t.Errorf("a workflow that has no schedule yet: got %+v", got)
	}
}

// A program syncs, works, and ends with its context.
func TestAppRuns(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c := client(t)
	app := program(c, "shop", "v7")
	var got atomic.Pointer[carillon.Tick[map[string]string]]
	carillon.Handle(app, "w", func(_ context.Context, tick carillon.Tick[map[string]string]) error {
		got.Store(&tick)
		stop()
		return nil
	})
	app.Declare("w", carillon.Global, carillon.Spec{Intervals: []carillon.Interval{{Every: "1s"}}}, carillon.Payload(map[string]string{"region": "us"}), carillon.Labels{"plan": "pro"})
	if err := app.Run(ctx); err != nil {
		t.Fatal(err)
	}
	tick := got.Load()
	if tick == nil || tick.Payload["region"] != "us" || tick.Labels["plan"] != "pro" || tick.WorkflowVersion != "v7" || tick.Timeout != "60s" {
		t.Errorf("got %+v", tick)
	}
}

// An attempt that runs longer than its timeout is told at once, and another attempt follows.
func TestTimeoutEndsTheContextOfTheHandler(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := client(t)
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "k", carillon.Params{Spec: daily(3), Delivery: carillon.Delivery{Timeout: "2s"}}))
	began := time.Now()
	fired := must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{}))
	w := carillon.NewWorker(c, carillon.WorkerConfig{Concurrency: 1, Log: quiet}) // it leases no attempt beside one that runs
	var called atomic.Bool
	causes := make(chan error, 1)
	carillon.Handle(w, "w", func(ctx context.Context, _ anyTick) error {
		if called.Swap(true) {
			return nil
		}
		began := time.Now()
		if deadline, ok := ctx.Deadline(); !ok || deadline.After(began.Add(2*time.Second)) {
			t.Errorf("the context ends at %v, with a timeout of 2s from at most %v on", deadline, began)
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	// An attempt that waits too long for its handler also times out, and does not reach it. So there may be more than two.
	r := until(t, c, fired.TickID, func(r carillon.TickRecord) bool { return r.State == "succeeded" })
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	most := 1 + int(time.Since(began)/(2*time.Second)) // each but the last takes the timeout
	if n := len(r.Attempts); r.State != "succeeded" || n < 2 || n > most || r.Attempts[0].Outcome == "succeeded" {
		t.Errorf("got %+v, want 2 to %d attempts", r, most)
	}
	select {
	case err := <-causes:
		if !errors.Is(err, carillon.ErrTimeout) {
			t.Errorf("got the cause %v", err)
		}
	default:
		t.Error("no attempt ran until its timeout")
	}
}
