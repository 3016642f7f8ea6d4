package loop

import (
	"sync"
	"time"
)

// Rarely bounds how often the log tells of one thing.
type Rarely struct {
	mu sync.Mutex
	at map[string]time.Time
}

// Due reports whether Due did not report a thing for a minute.
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
