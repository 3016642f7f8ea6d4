package sweep

import (
	"slices"
	"testing"
	"time"
)

func TestAShardWhoseSweepFailsRestsLongerEachTime(t *testing.T) {
	t.Parallel()
	s := NewShardSet()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, 5 * time.Second, 5 * time.Second} {
		s.add(1)
		s.fail(1, now)
		if got := s.others([]int16{1, 2}, now.Add(want-1)); !slices.Equal(got, []int16{2}) {
			t.Errorf("before a rest of %s ends: got %v", want, got)
		}
		if now = now.Add(want); !slices.Equal(s.others([]int16{1, 2}, now), []int16{1, 2}) {
			t.Errorf("a rest of %s does not end", want)
		}
	}
	s.add(1)
	s.remove(1)
	s.add(1)
	s.fail(1, now)
	if got := s.others([]int16{1}, now.Add(200*time.Millisecond)); len(got) != 1 {
		t.Error("a sweep that succeeds does not end the backoff")
	}
}
