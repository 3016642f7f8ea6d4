package explain

import "testing"

// Offsets end at ±23:59 (RFC 3339 section 5.6).
func TestOffsetsBeyondADayAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2026-03-01T00:00:00+24:00", "2026-03-01T00:00:00-24:00", "2026-03-01T00:00:00+10:60"} {
		if _, err := readAsked(text); err == nil {
			t.Errorf("at=%s is accepted", text)
		}
	}
}
