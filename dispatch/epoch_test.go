package dispatch_test

import (
	"fmt"
	"testing"

	"github.com/carillonhq/carillon/schedules"
)

// hanging is an endpoint whose first requests hang until they are let go: as many as there are channels, one by one.
func (h *house) hanging(name string, letGo ...chan struct{}) (c *catcher, came chan int) {
	h.t.Helper()
	c, came = h.catcher(name, 1, nil), make(chan int, 1000)
	c.hang(func(n int) {
		came <- n
		if n <= len(letGo) {
			<-letGo[n-1]
		}
	})
	return c, came
}

// A process that lost a chunk and has it back, and does not know, has no say in whether it is done by what it sent before.
func TestWhatWasSentBeforeAChunkWasTakenBackDoesNotEndIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	letGo := make(chan struct{})
	c, came := h.hanging("back", letGo)
	h.start(h.dispatch)
	h.put("back", "k", schedules.Params{Spec: at(5)})
	<-came
	h.exec(`UPDATE chunk SET epoch = epoch + 2, opened_at = opened_at - interval '5 seconds'`)
	close(letGo)
	until(t, "it was sent again", func() bool { return len(c.caught()) >= 2 })
	until(t, "it has succeeded", func() bool { return h.history("back", "k")[0].State == "succeeded" })
	until(t, "its chunk is done", func() bool { return h.number(`SELECT count(*) FROM chunk WHERE done_at IS NULL`) == 0 })
}

// Results of what a process sent before it lost a chunk, and of what it sent once it had it back, may be written together.
func TestResultsOfTwoEpochsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const n = 8
	letGo := make([]chan struct{}, 2*n)
	for i := range letGo {
		letGo[i] = make(chan struct{})
	}
	_, came := h.hanging("both", letGo...)
	h.start(h.dispatch)
	spec := at(10)
	for i := range n {
		h.put("both", fmt.Sprint(i), schedules.Params{Spec: spec})
	}
	for range n {
		<-came
	}
	h.exec(`UPDATE chunk SET owner = 0, epoch = epoch + 1`) // of a process that is gone
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
		until(t, fmt.Sprint(i, " has succeeded"), func() bool { return h.history("both", fmt.Sprint(i))[0].State == "succeeded" })
	}
}
