package cluster

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
	horizonEvery  = 500 * time.Millisecond
	restHorizon   = time.Second
	HorizonMargin = 100 * time.Millisecond // a statement reads the clock shortly before its transaction gets a number
	horizonWaits  = time.Minute            // a transaction that is open for longer is not ours: searches find its rows
)

// Horizon is a moment of the database's clock. Every transaction that wrote before it has ended.
type Horizon struct {
	mu    sync.Mutex
	At    time.Time
	Era   int // grows when the clock or the transaction numbers step back: all floors are invalid then
	last  Mark
	marks []Mark // oldest first

	settled Numbers // every chunk with this number or a lower one has been committed, or never will be; likewise rows of ready
	pending Numbers // every transaction that took these numbers or lower ones has a number below before
	before  int64
}

// Numbers are the highest number of a chunk, and of a row of ready.
type Numbers struct{ Chunk, ready int64 }

// Mark is a reading of the database: its clock, and the lowest transaction number that was not used yet.
type Mark struct {
	Clock  time.Time
	Next   int64
	Server time.Time // when the server was started: another one may lack transactions that were committed before
	Numbers
}

// Measure reads the horizon again and again until ctx ends. pace chooses the interval: horizonEvery, or restHorizon if nothing is due.
func (h *Horizon) Measure(ctx context.Context, db postgres.DB, log *slog.Logger, pace func(busy, idle time.Duration) time.Duration) {
	loop.Paced(ctx, log, func() time.Duration { return pace(horizonEvery, restHorizon) }, "read the open transactions", func(ctx context.Context) error {
		return h.Read(ctx, db)
	})
}

// Read reads the clock and the open transactions, and advances the horizon. StatementNow is no later than the statement's snapshot. The
// statement takes a transaction number of its own: the highest number that a snapshot tells of is that of the newest transaction that has
// ended, and open ones may have higher numbers.
func (h *Horizon) Read(ctx context.Context, db postgres.DB) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var m Mark
	var oldest int64
	if err := db.QueryRow(ctx, `
		SELECT `+postgres.StatementNow+`, pg_snapshot_xmin(s)::text::bigint, pg_current_xact_id()::text::bigint,
			pg_postmaster_start_time(), (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM chunk_id_seq),
			(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM ready_id_seq)
		FROM pg_current_snapshot() s`).Scan(&m.Clock, &oldest, &m.Next, &m.Server, &m.Chunk, &m.ready); err != nil {
		return fmt.Errorf("read the open transactions: %w", err)
	}
	h.Note(m, oldest)
	return nil
}

// Note advances the horizon by a mark. oldest is the oldest transaction number that was in use.
func (h *Horizon) Note(m Mark, oldest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Clock.Before(h.last.Clock) || m.Next < h.last.Next || m.Chunk < h.last.Chunk || m.ready < h.last.ready || !m.Server.Equal(h.last.Server) && !h.last.Clock.IsZero() {
		h.Era, h.marks, h.At = h.Era+1, nil, time.Time{}
		h.last, h.settled, h.pending, h.before = Mark{}, Numbers{}, Numbers{}, 0
	}
	if h.before <= oldest {
		// The last reading of the sequences came before this snapshot. A transaction has its number before it takes one of theirs.
		h.settled, h.pending, h.before = h.pending, h.last.Numbers, m.Next
	}
	for len(h.marks) > 0 && (h.marks[0].Next <= oldest || m.Clock.Sub(h.marks[0].Clock) > horizonWaits) {
		h.At, h.marks = h.marks[0].Clock.Add(-HorizonMargin), h.marks[1:]
	}
	h.last, h.marks = m, append(h.marks, m)
}

// Chunks returns the highest number such that no open transaction can still commit a chunk with it or with a lower one. Unlike
// the horizon by time it waits for every transaction, however long that is open.
func (h *Horizon) Chunks() (settled int64, era int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled.Chunk, h.Era
}

// SettledReady is like Chunks, for rows of ready.
func (h *Horizon) SettledReady() (settled int64, era int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settled.ready, h.Era
}

// CurrentEra returns the era of what a process remembers now: it is forgotten in the next one.
func (h *Horizon) CurrentEra() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Era
}

// Floor is a time below which an index by time has no live entry, as far as this process knows.
type Floor struct {
	mu  sync.Mutex
	At  time.Time
	era int
}

// Look is one reading of an index by time.
type Look struct {
	floor   *Floor
	From    time.Time // where to begin
	horizon time.Time
	era     int
}

// Look begins a reading at the floor. A full one begins at the low end of the index.
func (f *Floor) Look(h *Horizon, full bool) Look {
	h.mu.Lock()
	l := Look{floor: f, horizon: h.At, era: h.Era}
	h.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !full && f.era == l.era {
		l.From = f.At
	}
	return l
}

// Found advances the floor. first is the first live entry of a reading that began after the look did; the zero time means that there is none.
func (l Look) Found(first time.Time) {
	at := l.horizon
	if !first.IsZero() && first.Before(at) {
		at = first
	}
	l.floor.mu.Lock()
	defer l.floor.mu.Unlock()
	switch f := l.floor; {
	case l.era != f.era:
		if l.era > f.era {
			f.era, f.At = l.era, at
		}
	case l.From.After(f.At): // the floor came down meanwhile, and this reading began above it
	case at.After(f.At), !first.IsZero() && first.Before(f.At):
		f.At = at
	}
}
