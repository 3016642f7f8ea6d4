package cluster

import (
	"sync"
)

// Doubts are chunks of this process that it gave up or could not mark done. They may be open although the process knows nothing more of
// them. It is safe for concurrent use.
type Doubts struct {
	mu     sync.Mutex
	chunks map[int64]bool
}

// Add notes chunks.
func (d *Doubts) Add(chunks []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.chunks == nil {
		d.chunks = map[int64]bool{}
	}
	for _, id := range chunks {
		d.chunks[id] = true
	}
}

// Some returns up to most of the chunks.
func (d *Doubts) Some(most int) []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]int64, 0, most)
	for id := range d.chunks {
		if ids = append(ids, id); len(ids) == most {
			break
		}
	}
	return ids
}

// Remove forgets chunks.
func (d *Doubts) Remove(chunks []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range chunks {
		delete(d.chunks, id)
	}
}
