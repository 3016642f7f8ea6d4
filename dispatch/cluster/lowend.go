package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// LowEnd is where the live entries of an index by time begin, as far as this process knows.
type LowEnd struct {
	Index string
	First string // the query of the first past time, from $1 on
	Below string // the query of the first time from $1 to $2

	Floor  Floor
	Search Search
}

// SeldomSearch is the pause between two searches where a late row does little harm.
const SeldomSearch = 10 * time.Second

// Look returns the first past time of the index, or the zero time, and the time from which to read. From time to time it also searches
// below the floor, in the same round trip.
func (e *LowEnd) Look(ctx context.Context, db postgres.DB, h *Horizon) (from, first time.Time, err error) {
	l := e.Floor.Look(h, false)
	var at, below pgtype.Timestamptz
	var entries int
	var b pgx.Batch
	b.Queue(e.First, l.From).QueryRow(func(row pgx.Row) error { return row.Scan(&at) })
	w, search := e.Search.Begin(h, time.Now())
	if search {
		b.Queue(WithEntries(e.Below, e.Index), w.From, w.To).QueryRow(func(row pgx.Row) error { return row.Scan(&below, &entries) })
	}
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return from, first, fmt.Errorf("look into %s: %w", e.Index, err)
	}
	l.Found(at.Time)
	if search {
		e.Floor.Lower(w.Era, below.Time)
		e.Search.Ended(w, entries, time.Now())
	}
	return l.From, at.Time, nil
}

// Earliest returns the earliest of the times that are not zero, or the zero time.
func Earliest(times ...time.Time) (first time.Time) {
	for _, at := range times {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
