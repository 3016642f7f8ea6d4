package schedules

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// hoard keeps values by their keys, those that were used last, as long as they take no more than so many bytes together. It is
// safe for concurrent use.
type hoard[K comparable, V any] struct {
	size func(V) int
	most int

	mu    sync.Mutex
	kept  *simplelru.LRU[K, V]
	bytes int
}

// Of a hoard: the most values, however small they are, and what keeping one takes beside it.
const (
	hoardMost  = 100_000
	hoardEntry = 200 // bytes
)

// newHoard is an empty one that keeps values of at most so many bytes together; size tells how many one takes.
func newHoard[K comparable, V any](most int, size func(V) int) *hoard[K, V] {
	h := &hoard[K, V]{size: size, most: most}
	kept, err := simplelru.NewLRU(hoardMost, func(_ K, v V) { h.bytes -= h.size(v) + hoardEntry })
	if err != nil {
		panic(err) // its size is no more than zero
	}
	h.kept = kept
	return h
}

// Get returns what is kept under a key.
func (h *hoard[K, V]) Get(key K) (V, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept.Get(key)
}

// Add keeps a value, in place of the one that was kept under the key; what was not used for longest goes where there is no
// room. One that is too large by itself is not kept.
func (h *hoard[K, V]) Add(key K, v V) {
	n := h.size(v) + hoardEntry
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
