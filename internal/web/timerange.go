package web

import (
	"net/url"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/instant"
)

// Moment returns the instant in the named parameter of a query, which must be from 1970 to 2100. Without the parameter it returns
// otherwise.
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

// Range returns the range between the parameters from and to of a query. It may be at most as long as most. Without from, the range
// begins at start. Without to, its length is usual.
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
