package clienttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

func TestBulkTellsWhatIsBad(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	lines := []carillon.BulkLine{
		{Workflow: "w", Key: "a", Params: carillon.Params{Spec: daily, Payload: json.RawMessage("{\n\"n\": 1}")}},
		{Workflow: "w", Key: "b", Params: carillon.Params{Spec: carillon.Spec{Cron: []string{"nonsense"}}}},
		{Workflow: "w", Params: carillon.Params{Spec: daily}},
	}
	if got, err := c.Schedules.PutAll(t.Context(), slices.Values(lines), carillon.BulkParams{DryRun: true}); err != nil || got.Inserted != 2 {
		t.Errorf("a dry run: got %+v, %v", got, err)
	}
	if dry, err := c.Calendars.Put(t.Context(), "holidays", carillon.CalendarParams{Dates: []string{"2030-12-24"}, DryRun: true}); err != nil || len(dry.Dates) != 1 {
		t.Errorf("a dry run: got %+v, %v", dry, err)
	}
	if _, err := c.Calendars.Get(t.Context(), "holidays"); !errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("after a dry run: got %v", err)
	}
	var told []string
	sum, err := c.Schedules.PutAll(t.Context(), slices.Values(lines), carillon.BulkParams{ErrorsOnly: true, Each: func(r carillon.BulkResult) {
		told = append(told, fmt.Sprint(r.Line, r.Key, r.Error.Status))
	}})
	if err != nil || sum.Inserted != 2 || sum.Errors != 1 || !slices.Equal(told, []string{"2b422"}) {
		t.Errorf("got %+v, %v, told %q", sum, err, told)
	}
	if s, err := c.Schedules.Get(t.Context(), "w", "global"); err != nil || s.Version != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
	lines[2].IfAbsent = true
	if _, err := c.Schedules.PutAll(t.Context(), slices.Values(lines), carillon.BulkParams{}); err == nil || !strings.Contains(err.Error(), "condition") {
		t.Errorf("got %v", err)
	}
}
