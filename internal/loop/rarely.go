package loop

import (
	"sync"
	"time"
)

// Rarely limits log lines to one a minute for each subject. The zero value is ready to use. It is safe for concurrent use.
type Rarely struct {
	mu sync.Mutex
	at map[string]time.Time
}

// Due reports whether the subject may be logged now: Due has not returned true for it within the last minute.
func (r *Rarely) Due(what string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, told := r.at[what]; told && now.Sub(last) < time.Minute {
		return false
	}
	if r.at == nil || len(r.at) > 100 {
		r.at = map[string]time.Time{}
	}
	r.at[what] = now
	return true
}
