package open

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/chunk"
)

// slowRunner opens a run once it is let, and notes which runs it began.
type slowRunner struct {
	*runner
	noted sync.Mutex
	began []int64
	start chan int64
	let   chan error
}

func newSlowRunner(t *testing.T) *slowRunner {
	s := &slowRunner{start: make(chan int64, 1000), let: make(chan error)}
	s.runner = newRunner(func(ctx context.Context, run chunk.JobArgs, _ bool) error {
		s.noted.Lock()
		s.began = append(s.began, run.Chunk)
		s.noted.Unlock()
		s.start <- run.Chunk
		select {
		case err := <-s.let:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, true)
	s.runner.start(t.Context())
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s.close(ended)
	})
	return s
}

// of returns what the runner knows of a run.
func (s *slowRunner) of(chunk int64) *offered {
	s.runner.mu.Lock()
	defer s.runner.mu.Unlock()
	return s.runs[chunk]
}

func catchUpRun(number int64, priority int) chunk.Run {
	return chunk.Run{JobArgs: chunk.JobArgs{Chunk: number}, Lane: chunk.CatchUpLane, Priority: priority}
}

// fill has all slots of the lane taken.
func (s *slowRunner) fill() {
	for i := range int64(RunsAtOnce[chunk.CatchUpLane]) {
		s.offer([]chunk.Run{catchUpRun(-1-i, 1)})
		<-s.start
	}
}

func TestOfferedRunsAreOpenedByPriority(t *testing.T) {
	t.Parallel()
	s := newSlowRunner(t)
	s.fill()
	s.offer([]chunk.Run{catchUpRun(1, 4), catchUpRun(2, 4), catchUpRun(3, 1), catchUpRun(4, 2)})
	var order []int64
	for range 4 {
		s.let <- nil
		order = append(order, <-s.start)
	}
	if want := []int64{3, 4, 1, 2}; !slices.Equal(order, want) {
		t.Errorf("the runs were opened in the order %v, not %v", order, want)
	}
}

func TestRunsWithoutRoomAreLeftToRiver(t *testing.T) {
	t.Parallel()
	s := newSlowRunner(t)
	s.fill()
	for i := range int64(mostOffered) {
		if left := s.offer([]chunk.Run{catchUpRun(1+i, 3)}); left != nil {
			t.Fatalf("run %d is left to River: %v", 1+i, left)
		}
	}
	if left := s.offer([]chunk.Run{catchUpRun(1000, 3)}); !slices.Equal(left, []string{chunk.CatchUpLane}) {
		t.Errorf("one too many: got %v", left)
	}
	if left := s.offer([]chunk.Run{catchUpRun(1001, 1)}); !slices.Equal(left, []string{chunk.CatchUpLane}) {
		t.Errorf("one too many, and before the others: got %v", left)
	}
	for chunk, offered := range map[int64]bool{1000: false, mostOffered: false, 1001: true, 1: true} {
		if got := s.of(chunk) != nil; got != offered {
			t.Errorf("run %d: the runner has it: %v", chunk, got)
		}
	}
}

func TestAJobWaitsForTheRunnerOnly(t *testing.T) {
	t.Parallel()
	s := newSlowRunner(t)
	if err := s.await(t.Context(), 1); !errors.Is(err, errNotOffered) {
		t.Errorf("not offered: got %v", err)
	}
	s.fill()
	s.offer([]chunk.Run{catchUpRun(1, 1)})
	if err := s.await(t.Context(), 1); !errors.Is(err, errNotOffered) {
		t.Errorf("offered and not begun: got %v", err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(impatient, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("being opened: got %v", err)
	}
}

func TestAJobOpensWhatTheRunnerCouldNot(t *testing.T) {
	t.Parallel()
	s := newSlowRunner(t)
	for _, one := range []struct{ opened, job error }{{nil, nil}, {errors.New("why"), errNotOffered}} {
		s.offer([]chunk.Run{catchUpRun(1, 1)})
		r := s.of(1)
		<-s.start
		s.let <- one.opened
		<-r.done
		if err := s.await(t.Context(), 1); !errors.Is(err, one.job) {
			t.Errorf("opened: %v; got %v", one.opened, err)
		}
		s.runner.mu.Lock()
		delete(s.runs, 1)
		s.runner.mu.Unlock()
	}
}

func TestAJobTakesASlotOfItsLane(t *testing.T) {
	t.Parallel()
	s := newSlowRunner(t)
	s.fill()
	full, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.slot(full, chunk.CatchUpLane); err == nil {
		t.Error("the lane is full, and a job got a slot")
	}
	s.let <- nil
	free, err := s.slot(t.Context(), chunk.CatchUpLane)
	if err != nil {
		t.Fatal(err)
	}
	free()
}

func TestARunnerThatEndsLeavesItsRunsToRiver(t *testing.T) {
	t.Parallel()
	s := newSlowRunner(t)
	s.fill()
	s.offer([]chunk.Run{catchUpRun(1, 1)})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if left := s.close(ended); !slices.Equal(left, []string{chunk.CatchUpLane}) {
		t.Errorf("got %v", left)
	}
	if left := s.offer([]chunk.Run{catchUpRun(2, 1)}); !slices.Equal(left, []string{chunk.CatchUpLane}) {
		t.Errorf("an offer after the end: got %v", left)
	}
	if slices.Contains(s.began, 1) {
		t.Error("it began a run after its end")
	}
}
