package dispatch_test

import (
	"strings"
	"testing"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/web"
)

// An answer to a lease ends before it holds too many bytes. The ticks that do not fit are leased later, in their first attempt.
func TestALeaseEndsBeforeItHoldsTooMuch(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	h.start(h.dispatch)
	p := rarely("allow_all")
	p.Payload = web.Raw(`"` + strings.Repeat("x", 60_000) + `"`)
	c.put("w", "k", p)
	const n = 170
	for range n {
		get[history.Tick](c, 202, "POST", trigger, "")
	}
	type handed struct {
		TickID  string `json:"tick_id"`
		Attempt int
		Payload string
	}
	seen := map[string]bool{}
	for polls := 0; len(seen) < n; polls++ {
		got := get[struct{ Ticks []handed }](c, 200, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "max": 1000, "wait": "1m"}`).Ticks
		bytes := 0
		for _, one := range got {
			if bytes += len(one.Payload); one.Attempt != 1 || seen[one.TickID] || len(one.Payload) != 60_000 {
				t.Errorf("got %s in attempt %d with %d bytes", one.TickID, one.Attempt, len(one.Payload))
			}
			seen[one.TickID] = true
		}
		if bytes > web.MostPage || len(got) == 0 {
			t.Fatalf("poll %d: %d ticks of %d bytes", polls, len(got), bytes)
		}
	}
}
