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
	First string // finds the first time that is past, from $1 on
	Below string // finds the first time from $1 to $2

	Floor  Floor
	Search Search
}

// SeldomSearch is how often there is a search for what may come late.
const SeldomSearch = 10 * time.Second

// Look looks whether a time is past. It returns from where on to read, and the first such time; the zero time: there is none. Then
// it searches below.
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
