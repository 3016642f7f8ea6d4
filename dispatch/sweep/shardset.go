package sweep

import (
	"slices"
	"sync"
	"time"
)

// shardSet holds the shards that are queued or being swept, and those that rest because their last sweep failed.
type shardSet struct {
	mu    sync.Mutex
	set   map[int16]bool
	rests map[int16]shardRest
}

// shardRest is the idle backoff of a shard after a failure.
type shardRest struct {
	length time.Duration
	until  time.Time
}

const (
	leastShardRest = 200 * time.Millisecond
	mostShardRest  = 5 * time.Second
)

func NewShardSet() *shardSet { return &shardSet{set: map[int16]bool{}, rests: map[int16]shardRest{}} }

// add adds a shard, and reports whether it was not in the set.
func (s *shardSet) add(shard int16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set[shard] {
		return false
	}
	s.set[shard] = true
	return true
}

// others returns those of some shards that are not in the set and do not rest.
func (s *shardSet) others(shards []int16, now time.Time) []int16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(shards), func(shard int16) bool { return s.set[shard] || now.Before(s.rests[shard].until) })
}

// remove removes a shard whose sweep succeeded.
func (s *shardSet) remove(shard int16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, shard)
	delete(s.rests, shard)
}

// fail removes a shard whose sweep failed. It rests for 0.2 s, and twice as long after each further failure, up to 5 s.
func (s *shardSet) fail(shard int16, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, shard)
	length := min(mostShardRest, max(leastShardRest, 2*s.rests[shard].length))
	s.rests[shard] = shardRest{length, now.Add(length)}
}
