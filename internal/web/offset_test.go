package web

import (
	"testing"
	"time"
)

func TestOffsetsOfABodyEndBefore24Hours(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"2026-03-01T00:00:00+23:59": true, "2026-03-01T00:00:00-23:59": true, "2026-03-01T00:00:00+24:00": false, "2026-03-01T00:00:00-24:00": false, "2026-03-01T00:00:00+10:60": false,
	} {
		var v struct {
			At time.Time `json:"at"`
		}
		if err := Unmarshal([]byte(`{"at": "`+text+`"}`), &v); (err == nil) != good {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
