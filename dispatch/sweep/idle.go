package sweep

import (
	"sync/atomic"
	"time"
)

// A process of whose shards nothing has been swept for a while rests: it looks more seldom for what nothing due waits for. It
// looks for what is due as often as ever: retries and fixed_delay come due without a word to it.
const (
	restAfter   = 10 * time.Second
	RestAnalyze = 2 * time.Second
)

// rest is since when nothing was swept.
type Idle struct{ stirred atomic.Int64 }

// stir notes that chunks were swept, if any were.
func (r *Idle) stir(chunks int) {
	if chunks > 0 {
		r.stirred.Store(time.Now().UnixNano())
	}
}

// pace is the period at which something is looked for now: the first while there is something to do, else the second.
func (r *Idle) Pace(busy, idle time.Duration) time.Duration {
	if time.Since(time.Unix(0, r.stirred.Load())) < restAfter {
		return busy
	}
	return idle
}
