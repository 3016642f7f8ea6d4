package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
)

// While an old snapshot is open, no index entry of a row that changed since can be removed. A query that begins at the low end
// of an index by time then reads each of those entries again. So a look begins where the look before it found the first row.
// That is safe only if no transaction can still commit a row with an earlier time. Two rules make it so:
//
//   - Every statement that writes such a time writes no time before its own clock_timestamp().
//   - A look advances its floor no further than the horizon. All transactions that wrote before the horizon have ended, so the
//     look has seen all that they wrote.
//
// A search finds a row that came below the floor by other means.

const (
	horizonEvery  = 200 * time.Millisecond
	restHorizon   = time.Second
	horizonMargin = 100 * time.Millisecond // a statement reads the clock shortly before its transaction gets a number
	horizonWaits  = time.Minute            // a transaction that is open for longer is none of ours: its rows are left to searches
)

// horizon is a moment of the database's clock. Every transaction that wrote before it has ended.
type horizon struct {
	mu    sync.Mutex
	at    time.Time
	era   int // grows when the clock or the transaction numbers step back: all floors are void then
	last  mark
	marks []mark // oldest first

	settled numbers // every chunk with this number or a lower one has been committed, or never will be; likewise rows of ready
	pending numbers // every transaction that took these numbers or lower ones has a number below before
	before  int64
}

// numbers are the last that a chunk and a row of ready were given.
type numbers struct{ chunk, ready int64 }

// mark is a reading of the clock, and the first transaction number that was not in use by then.
type mark struct {
	clock  time.Time
	next   int64
	server time.Time // when the server was started: another one may lack transactions that were committed before
	numbers
}

// measure keeps the horizon up to date until ctx ends. It does so each horizonEvery or, if pace says so, each restHorizon.
func (h *horizon) measure(ctx context.Context, db postgres.DB, log *slog.Logger, pace func(busy, idle time.Duration) time.Duration) {
	loop.Paced(ctx, log, func() time.Duration { return pace(horizonEvery, restHorizon) }, "look which transactions are open", func(ctx context.Context) error {
		return h.read(ctx, db)
	})
}

// read reads the clock and which transactions are open. StatementNow is no later than the statement's snapshot.
func (h *horizon) read(ctx context.Context, db postgres.DB) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var m mark
	var oldest int64
	if err := db.QueryRow(ctx, `
		SELECT `+postgres.StatementNow+`, pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
			pg_postmaster_start_time(), (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM chunk_id_seq),
			(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM ready_id_seq)
		FROM pg_current_snapshot() s`).Scan(&m.clock, &oldest, &m.next, &m.server, &m.chunk, &m.ready); err != nil {
		return fmt.Errorf("look which transactions are open: %w", err)
	}
	h.note(m, oldest)
	return nil
}

// note takes a mark; oldest is the oldest transaction number that was in use.
func (h *horizon) note(m mark, oldest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.clock.Before(h.last.clock) || m.next < h.last.next || m.chunk < h.last.chunk || m.ready < h.last.ready || !m.server.Equal(h.last.server) && !h.last.clock.IsZero() {
		h.era, h.marks, h.at = h.era+1, nil, time.Time{}
		h.last, h.settled, h.pending, h.before = mark{}, numbers{}, numbers{}, 0
	}
	if h.before <= oldest {
		// The last reading of the sequences came before this snapshot. A transaction has its number before it takes one of theirs.
		h.settled, h.pending, h.before = h.pending, h.last.numbers, m.next
	}
	for len(h.marks) > 0 && (h.marks[0].next <= oldest || m.clock.Sub(h.marks[0].clock) > horizonWaits) {
		h.at, h.marks = h.marks[0].clock.Add(-horizonMargin), h.marks[1:]
	}
	h.last, h.marks = m, append(h.marks, m)
}

// chunks returns the highest number such that no open transaction can still commit a chunk with it or with a lower one. Unlike
// the horizon by time it waits for every transaction, however long that is open.
func (h *horizon) chunks() (settled int64, era int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled.chunk, h.era
}

// settledReady is like chunks, for rows of ready.
func (h *horizon) settledReady() (settled int64, era int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled.ready, h.era
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
