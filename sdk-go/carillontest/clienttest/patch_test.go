package clienttest

import (
	"encoding/json"
	"errors"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

func TestPatchChangesWhatItNames(t *testing.T) {
	t.Parallel()
	c := carillontest.New().Client()
	p := carillon.Params{Spec: daily, Payload: json.RawMessage(`{"n":1,"m":2}`), Labels: map[string]string{"plan": "pro"}, Note: ptr("why")}
	made, err := c.Schedules.Put(t.Context(), "w", "k", p)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Schedules.Patch(t.Context(), "w", "k", carillon.PatchParams{
		Merge:   map[string]any{"payload": map[string]any{"n": nil}, "labels": map[string]any{"tier": "1"}, "note": nil},
		IfMatch: made.Version,
	})
	if err != nil || string(s.Payload) != `{"m":2}` || s.Labels["plan"] != "pro" || s.Labels["tier"] != "1" || s.Note != "" || s.Version != 2 || !s.NextAt.Equal(*made.NextAt) {
		t.Errorf("got %+v, %v", s, err)
	}
	s, err = c.Schedules.Patch(t.Context(), "w", "k", carillon.PatchParams{Merge: json.RawMessage(`{"spec":{"cron":["0 9 * * *"]}}`)})
	if err != nil || s.NextAt.Hour() != 9 || s.Version != 3 {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := c.Schedules.Patch(t.Context(), "w", "k", carillon.PatchParams{IfMatch: 1}); !errors.Is(err, carillon.ErrPrecondition) {
		t.Errorf("another version: got %v", err)
	}
	if _, err := c.Schedules.Patch(t.Context(), "w", "none", carillon.PatchParams{}); !errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("one that is not there: got %v", err)
	}
}
