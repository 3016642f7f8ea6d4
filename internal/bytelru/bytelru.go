// Package bytelru is an LRU cache that is bounded by bytes: it evicts the least recently used values when the values together take more
// than a limit. A cache lives in the memory of one process; it has no tables, and a crash loses nothing that cannot be read again.
package bytelru

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache is an LRU cache bounded by bytes. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	size  func(V) int
	limit int // bytes

	mu     sync.Mutex
	values *simplelru.LRU[K, V]
	bytes  int
}

const (
	maxValues  = 100_000 // in one cache, however small they are
	entryBytes = 200     // that each value takes beside its own size
)

// New returns an empty cache of at most limit bytes. size returns how many bytes a value takes.
func New[K comparable, V any](limit int, size func(V) int) *Cache[K, V] {
	c := &Cache[K, V]{size: size, limit: limit}
	values, err := simplelru.NewLRU(maxValues, func(_ K, v V) { c.bytes -= c.size(v) + entryBytes })
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	c.values = values
	return c
}

// Get returns the value of a key, and marks it as used.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values.Get(key)
}

// Add stores a value in place of the key's old value, and evicts the least recently used values until the rest fits. It does not
// store a value that is larger than the limit by itself.
func (c *Cache[K, V]) Add(key K, v V) {
	n := c.size(v) + entryBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values.Remove(key)
	if n > c.limit {
		return
	}
	c.values.Add(key, v)
	for c.bytes += n; c.bytes > c.limit; {
		c.values.RemoveOldest()
	}
}

// Remove deletes the value of a key.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values.Remove(key)
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values.Len()
}
