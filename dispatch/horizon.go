package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// While an old snapshot is open, no index entry of a row that changed since can be removed. A query that begins at the low end
// of an index by time then reads each of those entries again. So a look begins where the look before it found the first row.
// That is safe only if no transaction can still commit a row with an earlier time. Two rules make it so:
//
//   - Every statement that writes such a time writes no time before its own clock_timestamp().
//   - A look advances its floor no further than the horizon. All transactions that wrote before the horizon have ended, so the
//     look has seen all that they wrote.
//
// A full look at rare intervals begins at the low end again. It finds a row that came below the floor by other means.

const (
	horizonEvery  = 200 * time.Millisecond
	restHorizon   = time.Second
	horizonMargin = 100 * time.Millisecond // a statement reads the clock shortly before its transaction gets a number
	horizonWaits  = time.Minute            // a transaction that is open for longer is none of ours: its rows are left to full looks
	fullLookPart  = 100                    // full looks take at most one part in so many of the time
	fullLookLeast = 200 * time.Millisecond // between two full looks
	fullLookFast  = 5 * time.Millisecond
	fullLookSlow  = 20 * time.Millisecond
	maxFullParts  = 64
)

// horizon is a moment of the database's clock. Every transaction that wrote before it has ended.
type horizon struct {
	mu    sync.Mutex
	at    time.Time
	era   int // grows when the clock or the transaction numbers step back: all floors are void then
	last  mark
	marks []mark // oldest first
}

// mark is a reading of the clock, and the first transaction number that was not in use by then.
type mark struct {
	clock time.Time
	next  int64
}

// measure keeps the horizon up to date until ctx ends.
func (h *horizon) measure(ctx context.Context, d *Dispatch) {
	d.paced(ctx, func() time.Duration { return d.rest.pace(horizonEvery, restHorizon) }, "look which transactions are open", func(ctx context.Context) error {
		return h.read(ctx, d)
	})
}

// read reads the clock and which transactions are open. statement_timestamp() is no later than the statement's snapshot.
func (h *horizon) read(ctx context.Context, d *Dispatch) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var m mark
	var oldest int64
	if err := d.Pool.QueryRow(ctx, `
		SELECT statement_timestamp(), pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
		FROM pg_current_snapshot() s`).Scan(&m.clock, &oldest, &m.next); err != nil {
		return fmt.Errorf("look which transactions are open: %w", err)
	}
	h.note(m, oldest)
	return nil
}

// note takes a mark; oldest is the oldest transaction number that was in use.
func (h *horizon) note(m mark, oldest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.clock.Before(h.last.clock) || m.next < h.last.next {
		h.era, h.marks, h.at = h.era+1, nil, time.Time{}
	}
	for len(h.marks) > 0 && (h.marks[0].next <= oldest || m.clock.Sub(h.marks[0].clock) > horizonWaits) {
		h.at, h.marks = h.marks[0].clock.Add(-horizonMargin), h.marks[1:]
	}
	h.last, h.marks = m, append(h.marks, m)
}

// floor is a time below which an index by time has no live entry, as far as this process knows.
type floor struct {
	mu  sync.Mutex
	at  time.Time
	era int
}

// look is one reading of an index by time.
type look struct {
	floor   *floor
	from    time.Time // where to begin
	horizon time.Time
	era     int
}

// look begins a reading. A full one begins at the low end.
func (f *floor) look(h *horizon, full bool) look {
	h.mu.Lock()
	l := look{floor: f, horizon: h.at, era: h.era}
	h.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !full && f.era == l.era {
		l.from = f.at
	}
	return l
}

// found notes the first live entry of a reading that began after the look did; the zero time: there is none.
func (l look) found(first time.Time) {
	at := l.horizon
	if !first.IsZero() && first.Before(at) {
		at = first
	}
	l.floor.mu.Lock()
	defer l.floor.mu.Unlock()
	switch f := l.floor; {
	case l.era != f.era:
		if l.era > f.era {
			f.era, f.at = l.era, at
		}
	case l.from.After(f.at): // the floor came down meanwhile, and this reading began above it
	case at.After(f.at), !first.IsZero() && first.Before(f.at):
		f.at = at
	}
}

// fullLooks paces full looks by what they take: usually one comes every fraction of a second and covers all parts of what is
// looked at. Where dead entries make it slow, it covers fewer parts at a time, and they take their turns.
type fullLooks struct {
	mu    sync.Mutex
	next  time.Time
	turn  int // the part that comes next
	parts int // how many one full look covers
}

// begin returns for each of n parts whether it is looked at in full now; any tells whether one is.
func (f *fullLooks) begin(now time.Time, n int) (full []bool, any bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	full = make([]bool, n)
	if n == 0 || now.Before(f.next) {
		return full, false
	}
	f.parts = max(1, f.parts)
	for range min(n, f.parts) {
		full[f.turn%n] = true
		f.turn = (f.turn + 1) % n
	}
	return full, true
}

// ended notes when a full look began and ended.
func (f *fullLooks) ended(began, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := now.Sub(began)
	switch {
	case took < fullLookFast && f.parts < maxFullParts:
		f.parts *= 2
	case took > fullLookSlow:
		f.parts = max(1, f.parts/2)
	}
	f.next = now.Add(max(fullLookLeast, fullLookPart*took))
}
