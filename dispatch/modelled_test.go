package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"pgregory.net/rapid"
)

// Clients change schedules in any order and at any time. After each step the status, version, coming times and history of each schedule
// are those that a simple model predicts.
func TestSchedulesAreAsTheModelSays(t *testing.T) {
	t.Parallel()
	c := postgrestest.StoppedClock(t, time.Date(2090, 3, 1, 0, 0, 0, 5e8, time.UTC)) // half a second past a whole one, so that no nominal time is exactly now
	h := dispatchtest.NewOn(t, c.Pool)
	h.Quota("acme", 10_000_000) // no tick waits for tokens, although the clock stands still
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		h.Exec(`DELETE FROM process`)
		if err := h.Dispatch.CountUnopened(t.Context()); err != nil { // else the open chunks of earlier runs would count as a backlog: no process counts by itself
			rt.Fatal(err)
		}
		w := &dispatchtest.ModelledHouse{Carillon: h, Clock: c, Rt: rt, Workflow: fmt.Sprint("w", runs), Model: map[string]*dispatchtest.Modelled{}}
		defer w.Clear()
		rt.Repeat(map[string]func(*rapid.T){
			"":       w.Compare,
			"put":    w.Put,
			"put 2":  w.Put, // twice, so that it is drawn most often
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
