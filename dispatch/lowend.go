package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillonhq/carillon/internal/postgres"
)

// lowEnd is where the live entries of an index by time begin, as far as this process knows.
type lowEnd struct {
	index string
	first string // finds the first time that is past, from $1 on
	below string // finds the first time from $1 to $2

	floor  floor
	search search
}

// seldomSearch is how often there is a search for what may come late.
const seldomSearch = 10 * time.Second

// look looks whether a time is past. It returns from where on to read, and the first such time; the zero time: there is none. Then
// it searches below.
func (e *lowEnd) look(ctx context.Context, db postgres.DB, h *horizon) (from, first time.Time, err error) {
	l := e.floor.look(h, false)
	var at pgtype.Timestamptz
	if err := db.QueryRow(ctx, e.first, l.from).Scan(&at); err != nil {
		return from, first, fmt.Errorf("look into %s: %w", e.index, err)
	}
	if l.found(at.Time); at.Valid {
		return l.from, at.Time, nil
	}
	return l.from, first, e.lower(ctx, db, h)
}

// lower lowers the floor to an entry that a search finds below it.
func (e *lowEnd) lower(ctx context.Context, db postgres.DB, h *horizon) error {
	w, is := e.search.begin(h, time.Now())
	if !is {
		return nil
	}
	var b pgx.Batch
	b.Queue(e.below, w.from, w.to).QueryRow(func(row pgx.Row) error {
		var first pgtype.Timestamptz
		err := row.Scan(&first)
		e.floor.lower(w.era, first.Time)
		return err
	})
	entries := entriesRead(&b, e.index)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("search %s: %w", e.index, err)
	}
	e.search.ended(w, *entries, time.Now())
	return nil
}

// earliest returns the earliest of the times that are not zero, or the zero time.
func earliest(times ...time.Time) (first time.Time) {
	for _, at := range times {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
