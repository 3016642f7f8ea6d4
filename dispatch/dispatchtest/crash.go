package dispatchtest

import (
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// At is a spec of one moment, some whole seconds from now: enough for a slow machine to store it before.
func At(seconds int) calendar.Spec {
	return calendar.Spec{At: []string{time.Now().UTC().Add(time.Duration(seconds) * time.Second).Format("2006-01-02T15:04:05")}}
}

func KeysOf(ticks []Handed) map[string]bool {
	keys := map[string]bool{}
	for _, one := range ticks {
		keys[one.Key] = true
	}
	return keys
}
