package schedules_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// The answer is whole, although its schedules have more bytes than the server keeps at a time.
func TestManyLargeSchedulesAreAnswered(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	keys := heavy(e.Fixture, 200)
	slices.Reverse(keys)
	asked, err := json.Marshal(map[string]any{"workflow": "w", "keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	items, _ := e.Want(200, "", "POST", "/v1/schedules/get", string(asked)).Doc["items"].([]any)
	if len(items) != len(keys) {
		t.Fatalf("got %d schedules of %d", len(items), len(keys))
	}
	for i, one := range items {
		if got := one.(map[string]any)["key"]; got != keys[i] {
			t.Fatalf("schedule %d is %v, not %s", i, got, keys[i])
		}
	}
}
