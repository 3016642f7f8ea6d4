package cluster

import (
	"cmp"
	"strings"
	"sync"
	"time"
)

// A row may come below a floor by means that the two rules do not know: by hand, or by a transaction that was open for longer than
// the horizon waits. A search looks for such rows. It reads the time below the floors in windows, from the latest to the earliest.
// A window that had few index entries is followed by a wider one, so that one window covers all of the past as long as no old snapshot
// is open. While one is, a window has about SearchMost entries, however long the snapshot has been open. Only a whole round takes longer then.
const (
	SearchMost   = 500 // index entries of a window
	SearchEvery  = time.Second
	searchNext   = 200 * time.Millisecond // between two windows of a round
	searchAll    = 100 * 365 * 24 * time.Hour
	searchFirst  = time.Second
	searchLeast  = time.Millisecond
	searchFaster = 8
)

// Search is the position of the search below some floors. It is safe for concurrent use.
type Search struct {
	Every time.Duration // between two rounds; 0: SearchEvery
	Most  int           // index entries of a window; 0: SearchMost
	Wide  bool          // the first window is all of the past, as windows come seldom

	mu    sync.Mutex
	after time.Time     // when the next window is read
	upper time.Time     // where the last window of this round began; the zero time: a round begins
	width time.Duration // of the next window
}

// Window is a part of the time below floors.
type Window struct {
	From, To time.Time
	Era      int
}

// Begin returns the next window. is reports that it is time to read it.
func (s *Search) Begin(h *Horizon, now time.Time) (w Window, is bool) {
	h.mu.Lock()
	w = Window{To: h.At, Era: h.Era}
	h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.To.IsZero() || now.Before(s.after) {
		return w, false
	}
	s.after = now.Add(searchNext)
	if !s.upper.IsZero() {
		w.To = s.upper
	}
	if s.width == 0 {
		s.width = searchFirst
		if s.Wide {
			s.width = searchAll
		}
	}
	if s.width < searchAll {
		w.From = w.To.Add(-s.width)
	}
	return w, true
}

// Ended notes how many index entries a window had.
func (s *Search) Ended(w Window, entries int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upper = w.From; w.From.IsZero() {
		s.after = now.Add(cmp.Or(s.Every, SearchEvery))
	}
	most := cmp.Or(s.Most, SearchMost)
	switch {
	case entries > most:
		s.width = max(searchLeast, min(s.width/4, searchFirst))
	case entries*searchFaster <= most && s.width < searchAll:
		s.width *= searchFaster
	}
}

// WithEntries returns a query that answers the rows of the given one, each with one more column: how many entries of indexes the query has
// read. If the given query finds no row, one row comes whose other columns are null.
func WithEntries(query string, indexes ...string) string {
	read := make([]string, len(indexes))
	for i, name := range indexes {
		read[i] = `pg_stat_get_xact_tuples_returned('` + name + `'::regclass)`
	}
	counter := strings.Join(read, " + ")
	// The counters also have what the connection has read within the last second or so. So the query reads them twice, and subtracts. The
	// lateral part needs the row of before, so it runs later, and its count has read all rows of found before the counters are read again.
	return `
		WITH found AS MATERIALIZED (` + query + `), before AS MATERIALIZED (SELECT ` + counter + ` AS n)
		SELECT f.*, read.entries
		FROM before
		CROSS JOIN LATERAL (SELECT count(*), ` + counter + ` - before.n AS entries FROM found) read
		LEFT JOIN found f ON true`
}

// Lower lowers the floor to a live entry that a search of that era has found; the zero time changes nothing.
func (f *Floor) Lower(era int, found time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.era == era && !found.IsZero() && found.Before(f.At) {
		f.At = found
	}
}

// Seldom paces a look that may take long, so that it takes at most a hundredth of the time, or is followed by a pause of a minute. Such
// looks have no floor: they read what an old snapshot keeps. A look that failed needs no pause. A nil Seldom makes none.
type Seldom struct {
	Every time.Duration // how long after its end a look is repeated anyway
	next  time.Time
}

const (
	seldomPart    = 100
	seldomLeast   = 200 * time.Millisecond
	seldomLongest = time.Minute
	seldomRow     = 100 * time.Microsecond
)

// Due reports whether it is time to look again.
func (s *Seldom) Due(now time.Time) bool { return s == nil || !now.Before(s.next) }

// Found sets the time of the next look by the duration of this one. It may take seldomRow for each row that it found: the rest of its time
// counts.
func (s *Seldom) Found(took time.Duration, rows int, now time.Time) {
	if s != nil {
		vain := took - time.Duration(rows)*seldomRow
		s.next = now.Add(min(seldomLongest, max(seldomLeast, seldomPart*vain)) - s.Every)
	}
}

// Ended is Found for a look whose rows are few.
func (s *Seldom) Ended(began, now time.Time) { s.Found(now.Sub(began), 0, now) }
