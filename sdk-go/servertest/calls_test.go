package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// must returns a function that unwraps a call's answer, or ends the test.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// exact is JSON that another writer would write differently.
var exact = json.RawMessage(`{"n": 1.00000000000000000001}`)

func gather[T any](t *testing.T, seq iter.Seq2[T, error]) []T {
	t.Helper()
	var all []T
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func TestTheSDKManagesWhatTheServerKeeps(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	schedule := must[carillon.Schedule](t)
	p := carillon.Params{
		Spec: carillon.Spec{
			Timezone: "America/New_York", Cron: carillon.Strings{"0 8 * * 1-5"},
			Calendars: []carillon.CalendarFields{{DayOfMonth: "1,15", Hour: "0"}},
			Exclude:   &carillon.Exclude{Dates: []string{"2027-01-01"}}, Jitter: "30s",
		},
		Policy:   carillon.Policy{Overlap: "allow_all", MaxLateness: "1h"},
		Delivery: carillon.Delivery{Priority: 1, Timeout: "5m", Retention: carillon.Retention{Failed: "7d"}},
		Payload:  map[string]any{"n": json.Number("1.00000000000000000001")},
		Labels:   map[string]string{"plan": "pro"},
	}
	made := schedule(c.Schedules.Put(ctx, "digest", "user/1", p))
	if string(made.Payload) != `{"n":1.00000000000000000001}` || made.NextAt == nil || made.Key != "user/1" {
		t.Errorf("got %+v", made)
	}
	if _, err := c.Schedules.Put(ctx, "digest", "user/1", carillon.Params{Spec: p.Spec, IfAbsent: true}); !errors.Is(err, carillon.ErrPrecondition) {
		t.Errorf("a second making: got %v", err)
	}
	if got := schedule(c.Schedules.Get(ctx, "digest", "user/1")); got.Version != made.Version || got.Labels["plan"] != "pro" {
		t.Errorf("got %+v", got)
	}
	if got := schedule(c.Schedules.Patch(ctx, "digest", "user/1", carillon.PatchParams{Merge: json.RawMessage(`{"labels":{"plan":null,"tier":"1"},"policy":{"max_lateness":null}}`), IfMatch: made.Version})); got.Labels["tier"] != "1" || got.Version != made.Version+1 {
		t.Errorf("got %+v", got)
	}
	if got := must[[]carillon.Schedule](t)(c.Schedules.GetMany(ctx, "digest", []string{"none", "user/1"})); len(got) != 1 || got[0].Key != "user/1" {
		t.Errorf("got %+v", got)
	}
	if got := gather(t, c.Schedules.List(ctx, carillon.Filter{Workflow: "digest", KeyPrefix: "user/"})); len(got) != 1 {
		t.Errorf("got %d schedules", len(got))
	}
	for _, f := range []carillon.Filter{{Label: "tier:1"}, {DueBefore: time.Now().AddDate(0, 2, 0)}} {
		if got := gather(t, c.Schedules.List(ctx, f)); len(got) != 1 {
			t.Errorf("%+v: got %d schedules", f, len(got))
		}
	}
	if got := must[carillon.Upcoming](t)(c.Schedules.Upcoming(ctx, "digest", "user/1", carillon.UpcomingParams{Count: 3})); len(got.Ticks) != 3 {
		t.Errorf("got %+v", got)
	}
	must[carillon.Upcoming](t)(c.Schedules.Preview(ctx, p.Spec, carillon.PreviewParams{Count: 2}))
	if got := schedule(c.Schedules.Skip(ctx, "digest", "user/1", carillon.SkipParams{Count: 1})); !got.NextAt.Equal(made.Upcoming[1]) {
		t.Errorf("got %+v", got)
	}
	schedule(c.Schedules.Skip(ctx, "digest", "user/1", carillon.SkipParams{At: made.Upcoming[1:2]}))
	if got := schedule(c.Schedules.Unskip(ctx, "digest", "user/1")); !got.NextAt.Equal(*made.NextAt) {
		t.Errorf("got %+v", got)
	}
	moved := made.NextAt.Add(time.Minute)
	if got := schedule(c.Schedules.Reschedule(ctx, "digest", "user/1", carillon.RescheduleParams{At: *made.NextAt, To: moved})); !got.NextAt.Equal(moved) {
		t.Errorf("got %+v", got)
	}
	until := time.Now().Add(time.Hour)
	if got := schedule(c.Schedules.Pause(ctx, "digest", "user/1", carillon.PauseParams{Until: &until, Note: "on leave"})); got.Status != "paused" || got.PausedUntil == nil {
		t.Errorf("got %+v", got)
	}
	if got := schedule(c.Schedules.Resume(ctx, "digest", "user/1", carillon.ResumeParams{FireOnce: true})); got.Status != "active" {
		t.Errorf("got %+v", got)
	}

	endpoint := must[carillon.Endpoint](t)(c.Endpoints.Put(ctx, "mailer", carillon.EndpointParams{URL: "https://mailer.example.com/ticks", Batch: 10, Headers: map[string]string{"X-Team": "growth"}}))
	if endpoint.Secret == "" || endpoint.State != "enabled" {
		t.Errorf("got %+v", endpoint)
	}
	if got := must[carillon.Endpoint](t)(c.Endpoints.Get(ctx, "mailer")); got.Secret != "" {
		t.Error("the secret was shown again")
	}
	same := carillon.EndpointParams{URL: endpoint.URL, Batch: 10, Headers: map[string]string{"X-Team": "growth"}, IfMatch: endpoint.UpdatedAt}
	must[carillon.Endpoint](t)(c.Endpoints.Put(ctx, "mailer", same))
	if _, err := c.Endpoints.Put(ctx, "mailer", same); !errors.Is(err, carillon.ErrPrecondition) {
		t.Errorf("an endpoint that was changed meanwhile: got %v", err)
	}
	if got := must[carillon.Endpoint](t)(c.Endpoints.RotateSecret(ctx, "mailer")); got.Secret == "" || got.Secret == endpoint.Secret {
		t.Error("the secret was not rotated")
	}
	if _, err := c.Endpoints.RotateSecret(ctx, "mailer"); !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("a second rotation at once: got %v", err)
	}
	must[carillon.Endpoint](t)(c.Endpoints.RotateSecret(ctx, "mailer", carillon.RotateParams{Force: true}))
	hook := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(hook.Close)
	must[carillon.Endpoint](t)(c.Endpoints.Put(ctx, "local", carillon.EndpointParams{URL: hook.URL}))
	if got := must[carillon.EndpointTrial](t)(c.Endpoints.Test(ctx, "local")); got.Status == nil || *got.Status != http.StatusNotFound || got.Error == nil {
		t.Errorf("got %+v", got)
	}
	if err := c.Endpoints.Delete(ctx, "local"); err != nil {
		t.Error(err)
	}
	must[carillon.Workflow](t)(c.Workflows.Put(ctx, "pushed", carillon.WorkflowParams{Endpoint: "mailer", Version: "v1", Defaults: carillon.Defaults{Delivery: carillon.Delivery{Timeout: "2m"}}}))
	if _, err := c.Workflows.Put(ctx, "pushed", carillon.WorkflowParams{IfMatch: endpoint.UpdatedAt}); !errors.Is(err, carillon.ErrPrecondition) {
		t.Errorf("another version of a workflow: got %v", err)
	}
	if got := must[carillon.Workflow](t)(c.Workflows.Get(ctx, "pushed")); got.Endpoint != "mailer" || got.Defaults.Delivery.Timeout != "2m" {
		t.Errorf("got %+v", got)
	}
	if n, m := len(gather(t, c.Workflows.List(ctx))), len(gather(t, c.Endpoints.List(ctx))); n != 2 || m != 1 {
		t.Errorf("got %d workflows and %d endpoints", n, m)
	}
	if err := c.Endpoints.Delete(ctx, "mailer"); !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("an endpoint in use: got %v", err)
	}
	if err := errors.Join(c.Workflows.Delete(ctx, "pushed"), c.Endpoints.Delete(ctx, "mailer"), c.Schedules.Delete(ctx, "digest", "user/1", carillon.DeleteParams{})); err != nil {
		t.Error(err)
	}
	if got := gather(t, c.Schedules.Revisions(ctx, "digest", "user/1")); len(got) != 4 || got[0].DeletedBy != made.UpdatedBy || got[2].NextBefore == nil || got[0].Status != "active" {
		t.Errorf("got %+v", got)
	}
	if _, err := c.Schedules.Get(ctx, "digest", "user/1"); !errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("a deleted schedule: got %v", err)
	}
}

func TestTheSDKWorksOffWhatTheServerFires(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "k", carillon.Params{
		Spec: carillon.Spec{Cron: carillon.Strings{"0 0 1 1 *"}}, Policy: carillon.Policy{Overlap: "allow_all"}, Payload: map[string]string{"mail": "a@b"},
	}))
	fired := must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{IdempotencyKey: "one"}))
	again := must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{IdempotencyKey: "one"}))
	if fired.TickID != again.TickID {
		t.Errorf("one key fired %s and %s", fired.TickID, again.TickID)
	}
	leased := must[[]carillon.Tick[json.RawMessage]](t)(c.Ticks.Lease(ctx, carillon.LeaseParams{Workflows: []string{"w"}, Max: 10, Wait: time.Minute, Lease: time.Minute, Worker: "sdk"}))
	if len(leased) != 1 || leased[0].TickID != fired.TickID || string(leased[0].Payload) != `{"mail":"a@b"}` {
		t.Fatalf("got %+v", leased)
	}
	tick := leased[0]
	until, err := c.Ticks.Heartbeat(ctx, tick.TickID, tick.LeaseToken, 30*time.Second)
	if err != nil || time.Until(until) < 0 {
		t.Errorf("got %s, %v", until, err)
	}
	if err := c.Ticks.Fail(ctx, tick.TickID, tick.LeaseToken, carillon.RetryAfter(io.ErrUnexpectedEOF, time.Second)); err != nil {
		t.Error(err)
	}
	if err := c.Ticks.Complete(ctx, tick.TickID, tick.LeaseToken, nil); !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("a tick given back: got %v", err)
	}

	snoozed := must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{In: "1h"}))
	if got := must[carillon.TickRecord](t)(c.Ticks.Cancel(ctx, snoozed.TickID)); snoozed.State != "scheduled" || got.State != "cancelled" {
		t.Errorf("a tick for later was %s and is %s", snoozed.State, got.State)
	}
	if _, err := c.Ticks.Cancel(ctx, snoozed.TickID); !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("a cancelled tick: got %v", err)
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := carillon.NewWorker(c, carillon.WorkerConfig{Log: slog.New(slog.DiscardHandler)})
	carillon.HandleResult(w, "w", func(_ context.Context, t carillon.Tick[map[string]string]) (string, error) {
		if t.Attempt == 2 {
			return "", carillon.RetryAfter(io.ErrUnexpectedEOF, time.Second)
		}
		stop()
		return t.Payload["mail"], nil
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	got := must[carillon.TickRecord](t)(c.Ticks.Get(t.Context(), fired.TickID))
	if got.State != "succeeded" || string(got.Result) != `"a@b"` || len(got.Attempts) != 3 || got.Attempts[1].Error != io.ErrUnexpectedEOF.Error() {
		t.Errorf("got %+v", got)
	}
	if e := must[carillon.Explanation](t)(c.Schedules.Explain(t.Context(), "w", "k", got.Timestamp)); e.Tick == nil || e.Tick.TickID != got.TickID {
		t.Errorf("got %+v", e)
	}
	if e := must[carillon.Explanation](t)(c.Schedules.ExplainLocal(t.Context(), "w", "k", "1999-01-01T08:00")); e.Outcome != "before_created" {
		t.Errorf("got %+v", e)
	}
	history := gather(t, c.Schedules.Ticks(t.Context(), "w", "k", carillon.TickFilter{State: "succeeded", From: got.Timestamp, To: got.Timestamp.Add(time.Second)}))
	if len(history) != 1 || history[0].TickID != fired.TickID {
		t.Errorf("got %+v", history)
	}
}

func TestTheSDKPutsManyAtOnce(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	line := func(key, cron string) carillon.BulkLine {
		return carillon.BulkLine{Workflow: "digest", Key: key, Params: carillon.Params{Spec: carillon.Spec{Cron: carillon.Strings{cron}}, Payload: json.RawMessage("{\n\"n\": 1.0}")}}
	}
	if got := must[carillon.BulkReport](t)(c.Schedules.PutAll(ctx, slices.Values([]carillon.BulkLine{line("a", "0 8 * * *")}), carillon.BulkParams{DryRun: true})); got.Inserted != 1 {
		t.Errorf("a dry run: got %+v", got)
	}
	var told []string
	sum, err := c.Schedules.PutAll(ctx, slices.Values([]carillon.BulkLine{line("a", "0 8 * * *"), line("b", "0 0 30 2 *"), line("c", "0 9 * * *"), line("a", "0 9 * * *")}), carillon.BulkParams{
		Each: func(r carillon.BulkResult) { told = append(told, r.Key+" "+r.Result) },
	})
	if err != nil || sum.BulkSummary != (carillon.BulkSummary{Inserted: 2, Duplicates: 1, Errors: 1}) || !slices.Equal(told, []string{"a duplicate", "b error", "c inserted", "a inserted"}) {
		t.Errorf("got %+v, %v, told %q", sum, err, told)
	}
	if got := must[carillon.Schedule](t)(c.Schedules.Get(ctx, "digest", "a")); string(got.Payload) != `{ "n": 1.0}` || got.NextAt == nil || got.NextAt.Hour() != 9 {
		t.Errorf("got %+v", got)
	}
}

func TestTheSDKActsOnManySchedules(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	for _, key := range []string{"a", "b"} {
		must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", key, carillon.Params{Spec: carillon.Spec{Cron: carillon.Strings{"0 0 1 1 *"}}}))
	}
	pause := carillon.ActionParams{Action: "pause", Keys: []string{"w/a", "w/none"}, Note: "incident"}
	if got := must[carillon.ActionPreview](t)(c.Schedules.PreviewAct(ctx, pause)); got.Matched != 1 || got.Changed != 1 || len(got.Sample) != 1 || got.Sample[0].Key != "a" {
		t.Errorf("got %+v", got)
	}
	ended := func(op carillon.Operation) carillon.Operation {
		t.Helper()
		for op.EndedAt == nil {
			op = must[carillon.Operation](t)(c.Operations.Get(ctx, op.ID))
		}
		return op
	}
	paused := ended(must[carillon.Operation](t)(c.Schedules.Act(ctx, pause)))
	if paused.Counts["paused"] != 1 || paused.Counts["not_found"] != 1 {
		t.Errorf("got %+v", paused)
	}
	undone := ended(must[carillon.Operation](t)(c.Schedules.Act(ctx, carillon.ActionParams{Action: "resume", Filter: &carillon.ActionFilter{Operation: paused.ID}})))
	if undone.Counts["resumed"] != 1 {
		t.Errorf("got %+v", undone)
	}
	if got := must[carillon.Workflow](t)(c.Workflows.Hold(ctx, "w")); got.State != "held" {
		t.Errorf("got %+v", got)
	}
	if _, err := c.Schedules.Trigger(ctx, "w", "a", carillon.TriggerParams{}); !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("a trigger of a held workflow: got %v", err)
	}
	if got := must[carillon.Workflow](t)(c.Workflows.Release(ctx, "w")); got.State != "active" {
		t.Errorf("got %+v", got)
	}
}
