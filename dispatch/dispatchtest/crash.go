package dispatchtest

import (
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// At is a spec of one moment, some whole seconds from now: enough for a slow machine to store it before.
func At(seconds int) calendar.Spec {
	return calendar.Spec{At: []string{time.Now().UTC().Add(time.Duration(seconds) * time.Second).Format("2006-01-02T15:04:05")}}
}

// TakenOver reports whether a chunk was taken over more often than the test itself causes. A process without a heartbeat for some seconds
// counts as dead: it registers again, the chunks that it had are taken over, and what it had sent is sent again.
func (h *Carillon) TakenOver(caused int) bool {
	h.T.Helper()
	return h.Number(`SELECT count(*) FROM chunk WHERE epoch > 1 + $1::int`, caused) > 0
}

// KeysOf returns the keys of the schedules of some ticks.
func KeysOf(ticks []Handed) map[string]bool {
	keys := map[string]bool{}
	for _, one := range ticks {
		keys[one.Key] = true
	}
	return keys
}
