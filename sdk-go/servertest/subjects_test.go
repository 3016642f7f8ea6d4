package servertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestTheSDKManagesSubjects(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	lines := []carillon.SubjectLine{
		{Subject: "ada", SubjectParams: carillon.SubjectParams{Timezone: "Asia/Kathmandu", QuietHours: carillon.QuietWindows{{From: "22:00", To: "07:00"}}}},
		{Subject: "bob", SubjectParams: carillon.SubjectParams{Timezone: "Europe/Nowhere"}},
		{Subject: "eve", SubjectParams: carillon.SubjectParams{Timezone: "Europe/Berlin", Labels: map[string]string{"plan": "pro"}}},
	}
	var told []string
	report := must[carillon.BulkReport](t)(c.Subjects.PutAll(ctx, slices.Values(lines), carillon.SubjectBulkParams{ErrorsOnly: true, Each: func(r carillon.SubjectResult) {
		told = append(told, r.Subject+" "+string(r.Error.Code))
	}}))
	if report.BulkSummary != (carillon.BulkSummary{Inserted: 2, Errors: 1}) || !slices.Equal(told, []string{"bob unknown_timezone"}) {
		t.Errorf("got %+v, told %q", report, told)
	}
	if got := gather(t, c.Subjects.Export(ctx)); len(got) != 2 || got[0].Subject != "ada" || got[0].QuietHours[0].From != "22:00" || got[1].Labels["plan"] != "pro" {
		t.Errorf("got %+v", got)
	}
	for _, key := range []string{"a", "b"} {
		must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", key, carillon.Params{Spec: carillon.Cron("0 8 * * *").In(carillon.SubjectZone), Subject: "ada", Labels: map[string]string{"kind": key}}))
	}
	overview := must[carillon.SubjectOverview](t)(c.Subjects.Overview(ctx, "ada"))
	if overview.Profile == nil || overview.TimezoneInForce != "Asia/Kathmandu" || len(overview.Schedules) != 2 || len(overview.Upcoming) == 0 {
		t.Errorf("got %+v", overview)
	}
	day := must[carillon.SubjectDay](t)(c.Subjects.Explain(ctx, "ada", time.Now().Format(time.DateOnly)))
	if day.Timezone != "Asia/Kathmandu" || len(day.Workflows) != 1 || day.Workflows[0].Workflow != "w" {
		t.Errorf("got %+v", day)
	}
	if got := must[carillon.Cancelled](t)(c.Subjects.Cancel(ctx, "ada", carillon.CancelParams{Label: "kind:a"})); got.Schedules != 1 || got.Operation != nil {
		t.Errorf("got %+v", got)
	}
	if _, err := c.Subjects.Rename(ctx, "ada", carillon.RenameParams{To: "eve"}); !errors.Is(err, carillon.CodeSubjectInUse) {
		t.Errorf("a name that is taken: got %v", err)
	}
	if got := must[carillon.Renamed](t)(c.Subjects.Rename(ctx, "ada", carillon.RenameParams{To: "ada lovelace"})); got.Schedules != 1 || !got.Profile {
		t.Errorf("got %+v", got)
	}
	if got := must[carillon.Erasure](t)(c.Subjects.Erase(ctx, "ada lovelace")); got.Counts.Schedules != 1 || got.Counts.Profiles != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestTheSDKWaitsForOperations(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", "k", carillon.Params{Spec: carillon.Cron("0 8 * * *")}))
	span := carillon.BackfillParams{From: time.Now().AddDate(0, 0, -3), To: time.Now().Add(-time.Hour), Overlap: "allow_all"}
	plan := must[carillon.BackfillPlan](t)(c.Schedules.PreviewBackfill(ctx, "w", "k", span))
	if plan.Count < 2 || plan.Existing != 0 || plan.First == nil {
		t.Errorf("got %+v", plan)
	}
	begun := must[carillon.Operation](t)(c.Schedules.Backfill(ctx, "w", "k", span))
	seen := 0
	ended := must[carillon.Operation](t)(c.Operations.Wait(ctx, begun.ID, func(carillon.Operation) { seen++ }))
	if ended.State != "succeeded" || ended.Counts["made"] != int64(plan.Count) || seen == 0 {
		t.Errorf("got %+v after %d looks", ended, seen)
	}
	ticks := gather(t, c.Ticks.List(ctx, carillon.TickScope{Operation: begun.ID}, carillon.TickFilter{PageSize: 1}))
	if len(ticks) != plan.Count || ticks[0].Cause != "backfill" {
		t.Errorf("got %+v", ticks)
	}
	if got := gather(t, c.Operations.List(ctx, "succeeded")); len(got) != 1 || got[0].ID != begun.ID {
		t.Errorf("got %+v", got)
	}
	if got := must[carillon.Operation](t)(c.Operations.Cancel(ctx, begun.ID)); got.State != "succeeded" {
		t.Errorf("a cancel after the end: got %+v", got)
	}
	if got := gather(t, c.Ticks.List(ctx, carillon.TickScope{Workflow: "w", Key: "k", ScheduleID: ticks[0].ScheduleID, Subject: "k", Cause: "manual"}, carillon.TickFilter{})); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}
