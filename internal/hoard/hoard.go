// Package hoard keeps values in memory within a number of bytes.
package hoard

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Hoard keeps values by their keys, those that were used last, as long as they take no more than so many bytes together. It is
// safe for concurrent use.
type Hoard[K comparable, V any] struct {
	size func(V) int
	most int

	mu    sync.Mutex
	kept  *simplelru.LRU[K, V]
	bytes int
}

// The most values of a hoard, however small they are, and what keeping one takes beside it.
const (
	mostKept   = 100_000
	entryBytes = 200 // bytes
)

// New returns an empty hoard that keeps values of at most so many bytes together. size tells how many a value takes.
func New[K comparable, V any](most int, size func(V) int) *Hoard[K, V] {
	h := &Hoard[K, V]{size: size, most: most}
	kept, err := simplelru.NewLRU(mostKept, func(_ K, v V) { h.bytes -= h.size(v) + entryBytes })
	if err != nil {
		panic(err) // its size is no more than zero
	}
	h.kept = kept
	return h
}

// Get returns what is kept under a key.
func (h *Hoard[K, V]) Get(key K) (V, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept.Get(key)
}

// Add keeps a value, in place of the one that was kept under the key; what was not used for longest goes where there is no
// room. One that is too large by itself is not kept.
func (h *Hoard[K, V]) Add(key K, v V) {
	n := h.size(v) + entryBytes
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept.Remove(key)
	if n > h.most {
		return
	}
	h.kept.Add(key, v)
	for h.bytes += n; h.bytes > h.most; {
		h.kept.RemoveOldest()
	}
}

// Remove forgets what is kept under a key.
func (h *Hoard[K, V]) Remove(key K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept.Remove(key)
}

// Len returns how many values are kept.
func (h *Hoard[K, V]) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept.Len()
}
