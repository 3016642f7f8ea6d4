package record

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/ident"
)

// However the times of ticks that are ended at once lie, each is in one part, and the schedules of a part have few other ticks
// between its first time and its last.
func TestPartsOfTicksAreNear(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ schedules, seconds, most int }{{1, 1, 1}, {100, 1, 1}, {3, 100, 1}, {1, 86400, 500}, {500, 86400, 500}, {50, 60, 5}} {
		named := map[ident.TickKey]bool{}
		for range 500 {
			k := ident.TickKey{Schedule: int64(rand.N(c.schedules)), At: noon.Add(time.Duration(rand.N(c.seconds)) * time.Second)}
			named[k] = true
		}
		var keys []ident.TickKey
		for k := range named {
			keys = append(keys, k)
		}
		parts := NearParts(keys)
		if len(parts) > c.most {
			t.Errorf("%+v: %d parts", c, len(parts))
		}
		for _, part := range parts {
			ids := map[int64]bool{}
			for _, k := range part {
				if !named[k] {
					t.Errorf("%+v: %v is in two parts, or was not there", c, k)
				}
				delete(named, k)
				ids[k.Schedule] = true
			}
			others := len(ids) * (int(part[len(part)-1].At.Sub(part[0].At)/time.Second) + 1)
			if others > 10*len(part)+100 {
				t.Errorf("%+v: there may be %d ticks for %d that are named", c, others, len(part))
			}
		}
		if len(named) > 0 {
			t.Errorf("%+v: %d ticks are in no part", c, len(named))
		}
	}
}
