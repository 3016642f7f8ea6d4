package calendar

import "testing"

func TestOffsetsOfInstantsEndBefore24Hours(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"2026-01-02T03:04:05Z":      true,
		"2026-01-02T03:04:05+23:59": true,
		"2026-01-02T03:04:05-23:59": true,
		"2026-01-02T03:04:05+24:00": false,
		"2026-01-02T03:04:05+10:60": false,
		"2026-01-02T03:04:05":       false,
		"":                          false,
	} {
		if _, err := parseInstant(text); (err == nil) != good {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
