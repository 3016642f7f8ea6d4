package sweep

import (
	"sync/atomic"
	"time"
)

// Idle backoff: a process that has swept nothing for a while runs its other periodic work less often. It still looks for due shards as
// often as before, because retries and fixed_delay become due without a notification.
const (
	restAfter   = 10 * time.Second
	RestAnalyze = 2 * time.Second
)

// Idle stores when the process last swept a chunk. It is safe for concurrent use.
type Idle struct{ stirred atomic.Int64 }

// stir records that chunks were swept now, if there were any.
func (r *Idle) stir(chunks int) {
	if chunks > 0 {
		r.stirred.Store(time.Now().UnixNano())
	}
}

// Pace returns the period of periodic work: busy after recent sweeps, otherwise idle.
func (r *Idle) Pace(busy, idle time.Duration) time.Duration {
	if time.Since(time.Unix(0, r.stirred.Load())) < restAfter {
		return busy
	}
	return idle
}
