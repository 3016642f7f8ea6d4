package dispatch

import (
	"cmp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A row may come below a floor by means that the two rules do not know: by hand, or by a transaction that was open for longer than
// the horizon waits. A search looks for such rows. It reads the time below the floors in windows, from the latest to the earliest.
// A window that had few index entries is followed by a wider one, so that one window covers all of the past as long as no old snapshot
// is open. While one is, a window has about searchMost entries, however long the snapshot has been open. Only a whole round takes longer then.
const (
	searchMost   = 500 // index entries of a window
	searchEvery  = time.Second
	searchNext   = 200 * time.Millisecond // between two windows of a round
	searchAll    = 100 * 365 * 24 * time.Hour
	searchFirst  = time.Second
	searchLeast  = time.Millisecond
	searchFaster = 8
)

// search is where the search below some floors has come to.
type search struct {
	every time.Duration // between two rounds; 0: searchEvery

	mu    sync.Mutex
	after time.Time     // when the next window is read
	upper time.Time     // where the last window of this round began; the zero time: a round begins
	width time.Duration // of the next window
}

// window is a part of the time below floors.
type window struct {
	from, to time.Time
	era      int
}

// begin returns the next window, if it is time to read one.
func (s *search) begin(h *horizon, now time.Time) (w window, is bool) {
	h.mu.Lock()
	w = window{to: h.at, era: h.era}
	h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.to.IsZero() || now.Before(s.after) {
		return w, false
	}
	s.after = now.Add(searchNext)
	if !s.upper.IsZero() {
		w.to = s.upper
	}
	if s.width == 0 {
		s.width = searchFirst
	}
	if s.width < searchAll {
		w.from = w.to.Add(-s.width)
	}
	return w, true
}

// ended notes how many index entries a window had.
func (s *search) ended(w window, entries int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upper = w.from; w.from.IsZero() {
		s.after = now.Add(cmp.Or(s.every, searchEvery))
	}
	switch {
	case entries > searchMost:
		s.width = max(searchLeast, min(s.width/4, searchFirst))
	case entries*searchFaster <= searchMost && s.width < searchAll:
		s.width *= searchFaster
	}
}

// entriesRead asks how many entries of indexes the transaction has read, and returns where the answer comes.
func entriesRead(b *pgx.Batch, indexes ...string) (n *int) {
	n = new(int)
	b.Queue(`SELECT COALESCE(sum(pg_stat_get_xact_tuples_returned(name::regclass)), 0)::bigint FROM unnest($1::text[]) name`, indexes).
		QueryRow(func(row pgx.Row) error { return row.Scan(n) })
	return n
}

// lower makes the next reading begin at a live entry that a search has found.
func (f *floor) lower(era int, found time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.era == era && !found.IsZero() && found.Before(f.at) {
		f.at = found
	}
}

// seldom paces what may take long: it takes at most one part in a hundred of the time.
type seldom struct{ next time.Time }

const (
	seldomPart  = 100
	seldomLeast = 200 * time.Millisecond
)

func (s *seldom) due(now time.Time) bool { return !now.Before(s.next) }

func (s *seldom) ended(began, now time.Time) {
	s.next = now.Add(max(seldomLeast, seldomPart*now.Sub(began)))
}
