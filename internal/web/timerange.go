package web

import (
	"net/url"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/instant"
)

// Moment returns an instant of a query, from 1970 to 2100, or another if the query does not have it.
func Moment(q url.Values, name string, otherwise time.Time) (time.Time, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	at, err := instant.Parse(q.Get(name))
	if err != nil || at.Year() < 1970 || at.Year() > 2100 {
		return at, fault.Invalid("/"+name, "%q is not an RFC 3339 time from 1970 to 2100", q.Get(name))
	}
	return at.UTC(), nil
}

// Range returns the members from and to of a query, which may be at most so long. Without from it begins at start; without to it ends
// after usual.
func Range(q url.Values, start time.Time, usual, most time.Duration) (from, to time.Time, err error) {
	if from, err = Moment(q, "from", start.UTC()); err != nil {
		return from, to, err
	}
	if to, err = Moment(q, "to", from.Add(usual)); err != nil {
		return from, to, err
	}
	switch {
	case !from.Before(to):
		return from, to, fault.Invalid("/to", "is not after from")
	case to.Sub(from) > most:
		return from, to, fault.Invalid("/to", "is more than %d days after from", int(most/(24*time.Hour)))
	}
	return from, to, nil
}
