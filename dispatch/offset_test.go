package dispatch

import (
	"net/url"
	"testing"
)

// Offsets end at ±23:59 (RFC 3339 section 5.6), in parameters of all kinds.
func TestOffsetsBeyondADayAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2026-03-01T00:00:00+24:00", "2026-03-01T00:00:00-24:00", "2026-03-01T00:00:00+10:60"} {
		if _, err := timeParam(url.Values{"from": {text}}, "from"); err == nil {
			t.Errorf("from=%s was let pass", text)
		}
		if _, err := readAsked(text); err == nil {
			t.Errorf("at=%s was let pass", text)
		}
	}
}
