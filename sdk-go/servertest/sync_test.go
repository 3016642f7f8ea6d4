package servertest

import (
	"errors"
	"iter"
	"slices"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// listed returns a line for each key of workflow w, with the label "of:sdk".
func listed(hour string, keys ...string) iter.Seq[carillon.BulkLine] {
	return func(yield func(carillon.BulkLine) bool) {
		for _, key := range keys {
			p := carillon.Params{Spec: carillon.Spec{Cron: carillon.Strings{"0 " + hour + " * * *"}}, Labels: map[string]string{"of": "sdk"}}
			if !yield(carillon.BulkLine{Workflow: "w", Key: key, Params: p}) {
				return
			}
		}
	}
}

func TestTheSDKSyncs(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t)
	sync := must[carillon.SyncReport](t)
	scope := carillon.SyncParams{Label: "of:sdk", Unlisted: carillon.PauseUnlisted}
	if got := sync(c.Schedules.Sync(ctx, listed("8", "a", "b", "c"), scope)); got.SyncSummary != (carillon.SyncSummary{Inserted: 3}) {
		t.Errorf("got %+v", got)
	}
	dry := scope
	dry.DryRun = true
	if got := sync(c.Schedules.Sync(ctx, listed("9", "a"), dry)); got.SyncSummary != (carillon.SyncSummary{Updated: 1, Reconciled: 2}) {
		t.Errorf("a dry run: got %+v", got)
	}
	bounded := scope
	bounded.MaxChange = "50%"
	_, err := c.Schedules.Sync(ctx, listed("9", "a"), bounded)
	refused := (*carillon.Error)(nil)
	if !errors.As(err, &refused) || refused.Code != "too_many_changes" || refused.Stored != 3 || refused.Summary == nil || refused.Summary.Reconciled != 2 {
		t.Errorf("a sync that changes too much: got %v", err)
	}
	var told []string
	scope.Each = func(r carillon.BulkResult) { told = append(told, r.Key+" "+r.Result) }
	if got := sync(c.Schedules.Sync(ctx, listed("8", "a", "b"), scope)); got.SyncSummary != (carillon.SyncSummary{Unchanged: 2, Reconciled: 1}) {
		t.Errorf("got %+v", got)
	}
	if !slices.Equal(told, []string{"a unchanged", "b unchanged"}) {
		t.Errorf("told %q", told)
	}
	if got := must[carillon.Schedule](t)(c.Schedules.Get(ctx, "w", "c")); got.Status != "paused" || got.PausedBy != "sync" {
		t.Errorf("an unlisted one: got %+v", got)
	}
	if got := sync(c.Schedules.Sync(ctx, listed("8", "a", "b", "c"), scope)); got.Resumed != 1 || got.Unchanged != 2 {
		t.Errorf("listed again: got %+v", got)
	}
	whole := carillon.SyncParams{Workflow: "w", Unlisted: carillon.DeleteUnlisted}
	if got := sync(c.Schedules.Sync(ctx, func(func(carillon.BulkLine) bool) {}, whole)); got.Reconciled != 3 {
		t.Errorf("a sync with nothing: got %+v", got)
	}
}

// The lines of an Export make the same schedules in another tenant, with the same bytes of their payloads.
func TestTheSDKMovesSchedules(t *testing.T) {
	t.Parallel()
	ctx, from, to := t.Context(), client(t), client(t)
	must[carillon.BulkReport](t)(from.Schedules.PutAll(ctx, listed("8", "a", "b"), carillon.BulkParams{}))
	must[carillon.Schedule](t)(from.Schedules.Put(ctx, "other", "", carillon.Params{Spec: carillon.Spec{Cron: carillon.Strings{"@daily"}}, Payload: exact}))
	var failed error
	lines := func(yield func(carillon.BulkLine) bool) {
		for line, err := range from.Schedules.Export(ctx, "") {
			if failed = err; err != nil || !yield(line) {
				return
			}
		}
	}
	if got := must[carillon.BulkReport](t)(to.Schedules.PutAll(ctx, lines, carillon.BulkParams{})); failed != nil || got.Inserted != 3 {
		t.Errorf("got %+v, %v", got, failed)
	}
	if got := must[carillon.BulkReport](t)(from.Schedules.PutAll(ctx, lines, carillon.BulkParams{})); failed != nil || got.Unchanged != 3 {
		t.Errorf("in the same tenant: got %+v, %v", got, failed)
	}
	if got := must[carillon.Schedule](t)(to.Schedules.Get(ctx, "other", "global")); string(got.Payload) != string(exact) {
		t.Errorf("got the payload %s", got.Payload)
	}
	if got := gather(t, from.Schedules.Export(ctx, "w")); len(got) != 2 || got[0].Payload != nil {
		t.Errorf("got %+v", got)
	}
}
