package open

import (
	"errors"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
)

const (
	mostWait = time.Minute // how long a chunk is left to a later try
)

// notYet is the error of an opening that leaves a chunk to a later try. Nothing has failed.
type notYet struct {
	wait time.Duration
	why  string
}

func (e *notYet) Error() string { return e.why }

// unready returns why a locked chunk is left to a later try, or nil. Either its time is in the future, because the clock was set back
// after the sweep, or a newer program wrote the defaults of one of its workflows.
func (p *plan) unready(ahead bool) *notYet {
	if why := unreadable(p.routes); why != nil {
		return why
	}
	var latest time.Time
	for i := range p.groups {
		if p.groups[i].At.After(latest) {
			latest = p.groups[i].At
		}
	}
	if wait := latest.Sub(p.now); wait > 0 && ahead {
		return &notYet{min(wait, mostWait), "its time is ahead of the database's clock"}
	}
	return nil
}

// unreadable returns why ticks of one of some workflows cannot be handed out yet, or nil.
func unreadable(routes []route) *notYet {
	for i := range routes {
		if err := routes[i].unreadable; err != nil {
			return &notYet{record.NewerWait, "the defaults of a workflow cannot be read: " + err.Error()}
		}
	}
	return nil
}

// sooner returns the shorter wait of the two; a nil one waits forever.
func (e *notYet) sooner(other *notYet) *notYet {
	if e == nil || other.wait < e.wait {
		return other
	}
	return e
}

// leftChunks holds the chunks that this process leaves to a later try, with the time of that try.
type leftChunks struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

// add adds a chunk if the error of its opening says so.
func (l *leftChunks) add(chunk int64, err error, now time.Time) (left bool) {
	later, left := errors.AsType[*notYet](err)
	if !left {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = map[int64]time.Time{}
	}
	l.until[chunk] = now.Add(later.wait)
	return true
}

// at returns the chunks that are left at a moment, and forgets the others.
func (l *leftChunks) at(now time.Time) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	chunks := []int64{}
	for chunk, until := range l.until {
		if !now.Before(until) {
			delete(l.until, chunk)
			continue
		}
		chunks = append(chunks, chunk)
	}
	return chunks
}
