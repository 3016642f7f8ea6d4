package push_test

import (
	"fmt"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
)

// hanging is an endpoint whose first requests hang until they are let go: as many as there are channels, one by one.
func hanging(h *dispatchtest.Carillon, name string, letGo ...chan struct{}) (c *dispatchtest.Catcher, came chan int) {
	h.T.Helper()
	c, came = h.Catcher(name, 1, nil), make(chan int, 1000)
	c.Hang(func(n int) {
		came <- n
		if n <= len(letGo) {
			<-letGo[n-1]
		}
	})
	return c, came
}

// A process loses a chunk and takes it back without noticing. The results of its requests of the earlier epoch do not mark the chunk done.
func TestWhatWasSentBeforeAChunkWasTakenBackDoesNotEndIt(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	letGo := make(chan struct{})
	c, came := hanging(h, "back", letGo)
	h.Start(h.Dispatch)
	h.Put("back", "k", schedules.Params{Spec: dispatchtest.At(15)})
	<-came
	h.Exec(`UPDATE chunk SET epoch = epoch + 2, opened_at = opened_at - interval '5 seconds'`)
	close(letGo)
	dispatchtest.Until(t, "it was sent again", func() bool { return len(c.Caught()) >= 2 })
	dispatchtest.Until(t, "it has succeeded", func() bool { return h.History("back", "k")[0].State == "succeeded" })
	dispatchtest.Until(t, "its chunk is done", func() bool { return h.Number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
}

// Results of what a process sent before it lost a chunk, and of what it sent once it had it back, may be written together.
func TestResultsOfTwoEpochsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const n = 8
	letGo := make([]chan struct{}, 2*n)
	for i := range letGo {
		letGo[i] = make(chan struct{})
	}
	_, came := hanging(h, "both", letGo...)
	h.Start(h.Dispatch)
	spec := dispatchtest.At(10)
	for i := range n {
		h.Put("both", fmt.Sprint(i), schedules.Params{Spec: spec})
	}
	for range n {
		<-came
	}
	h.Exec(`UPDATE chunk SET owner = 0, epoch = epoch + 1`) // of a process that is gone
	for range n {
		<-came
	}
	for i := n; i < 2*n; i++ { // what was sent last is answered first
		close(letGo[i])
	}
	for i := range n {
		close(letGo[i])
	}
	for i := range n {
		dispatchtest.Until(t, fmt.Sprint(i, " has succeeded"), func() bool { return h.History("both", fmt.Sprint(i))[0].State == "succeeded" })
	}
}
