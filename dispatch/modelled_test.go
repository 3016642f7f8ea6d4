package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"pgregory.net/rapid"
)

// What clients do, in any order and at any time, has the schedules be as a simple model of the rulings says: their
// status, version, coming times and history agree after each step.
func TestSchedulesAreAsTheModelSays(t *testing.T) {
	t.Parallel()
	c := dispatchtest.StoppedClock(t, time.Date(2027, 3, 1, 0, 0, 0, 5e8, time.UTC)) // half a second past: no time is ever just now
	h := dispatchtest.NewOn(t, c.Pool)
	h.Quota("acme", 10_000_000) // tokens come with the clock, which stands still
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		h.Exec(`DELETE FROM process`)
		w := &dispatchtest.ModelledHouse{Carillon: h, Clock: c, Rt: rt, Workflow: fmt.Sprint("w", runs), Model: map[string]*dispatchtest.Modelled{}}
		defer w.Clear()
		rt.Repeat(map[string]func(*rapid.T){
			"":       w.Compare,
			"put":    w.Put,
			"put 2":  w.Put, // the commonest
			"patch":  w.Patch,
			"pause":  w.Pause,
			"resume": w.Resume,
			"skip":   w.Skip,
			"unskip": w.Unskip,
			"delete": w.Delete,
			"bulk":   w.Bulk,
			"sync":   w.Sync,
			"wait":   w.Wait,
			"sweep":  w.Sweep,
			"sweep 2": func(rt *rapid.T) {
				w.Wait(rt)
				w.Sweep(rt)
			},
			"finish": w.Finish,
		})
	})
}
