package schedules_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
)

// heavy are schedules that hold more bytes together than one page may.
func (h *home) heavy(n int) (keys []string) {
	h.t.Helper()
	var lines strings.Builder
	payload := strings.Repeat("x", 60_000)
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%03d", i))
		fmt.Fprintf(&lines, `{"workflow": "w", "key": %q, "spec": {"cron": "0 12 * * *"}, "payload": %q}`+"\n", keys[i], payload)
	}
	if _, err := h.inBulk.Upsert(h.t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(lines.String())), func([]bulk.Result) error { return nil }); err != nil {
		h.t.Fatal(err)
	}
	return keys
}

// A page ends before it holds too many bytes, and its cursor goes on there; nothing is left out.
func TestAPageEndsBeforeItHoldsTooMuch(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	keys := h.heavy(200)
	var got []string
	pages, cursor := 0, ""
	for {
		page, next, err := h.schedules.List(t.Context(), h.acme, schedules.Filter{}, 1000, cursor)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, one := range page {
			got, bytes = append(got, one.Key), bytes+len(one.Payload)
		}
		if pages++; bytes > web.MostPage {
			t.Errorf("page %d holds %d bytes", pages, bytes)
		}
		if next == nil {
			break
		}
		cursor = *next
	}
	if !slices.Equal(got, keys) || pages < 2 {
		t.Errorf("%d schedules on %d pages, of %d", len(got), pages, len(keys))
	}

	exported := 0
	err := h.schedules.Export(t.Context(), h.acme, schedules.Filter{}, func(lines [][]byte) error {
		exported += len(lines)
		return nil
	})
	if err != nil || exported != len(keys) {
		t.Errorf("%d schedules were exported, of %d: %v", exported, len(keys), err)
	}
}

// The whole answer comes, though the schedules that are asked for hold more bytes than are held at a time.
func TestManyLargeSchedulesAreAnswered(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	keys := e.heavy(200)
	slices.Reverse(keys)
	asked, err := json.Marshal(map[string]any{"workflow": "w", "keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	items, _ := e.want(200, "", "POST", "/v1/schedules/get", string(asked)).doc["items"].([]any)
	if len(items) != len(keys) {
		t.Fatalf("got %d schedules of %d", len(items), len(keys))
	}
	for i, one := range items {
		if got := one.(map[string]any)["key"]; got != keys[i] {
			t.Fatalf("schedule %d is %v, not %s", i, got, keys[i])
		}
	}
}
