package instant

import "testing"

func TestParse(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"2026-03-01T00:00:00Z": true, "2026-03-01T00:00:00.5Z": true, "2026-03-01T00:00:00+23:59": true, "2026-03-01T00:00:00-23:59": true, "2026-03-01T00:00:00-00:00": true,
		"2026-03-01T00:00:00+24:00": false, "2026-03-01T00:00:00-24:00": false, "2026-03-01T00:00:00+10:60": false, "2026-03-01T00:00:00": false, "": false, "Z": false,
	} {
		if _, err := Parse(text); (err == nil) != good {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
