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

// Look returns the first past time of the index, or the zero time, and the time from which to read. If no time is past, it searches
// below the floor.
func (e *LowEnd) Look(ctx context.Context, db postgres.DB, h *Horizon) (from, first time.Time, err error) {
	l := e.Floor.Look(h, false)
	var at pgtype.Timestamptz
	if err := db.QueryRow(ctx, e.First, l.From).Scan(&at); err != nil {
		return from, first, fmt.Errorf("look into %s: %w", e.Index, err)
	}
	if l.Found(at.Time); at.Valid {
		return l.From, at.Time, nil
	}
	return l.From, first, e.lower(ctx, db, h)
}

// lower lowers the floor to an entry that a search finds below it.
func (e *LowEnd) lower(ctx context.Context, db postgres.DB, h *Horizon) error {
	w, is := e.Search.Begin(h, time.Now())
	if !is {
		return nil
	}
	var b pgx.Batch
	b.Queue(e.Below, w.From, w.To).QueryRow(func(row pgx.Row) error {
		var first pgtype.Timestamptz
		err := row.Scan(&first)
		e.Floor.Lower(w.Era, first.Time)
		return err
	})
	entries := EntriesRead(&b, e.Index)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("search %s: %w", e.Index, err)
	}
	e.Search.Ended(w, *entries, time.Now())
	return nil
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
