package carillontest

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// query reads the parameters of a request. err is the first fault.
type query struct {
	url.Values
	err error
}

func newQuery(r *http.Request) *query { return &query{Values: r.URL.Query()} }

func (q *query) number(name string, otherwise, least, most int) int {
	if !q.Has(name) {
		return otherwise
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < least || n > most {
		q.bad(name, "%q is not a number from %d to %d", q.Get(name), least, most)
	}
	return n
}

func (q *query) time(name string) time.Time {
	if !q.Has(name) {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, q.Get(name))
	if err != nil {
		q.bad(name, "%q is not an instant such as 2026-12-24T18:00:00Z", q.Get(name))
	}
	return at.UTC()
}

func (q *query) bad(name, format string, args ...any) {
	if q.err == nil {
		q.err = fault.Invalid("/"+name, format, args...)
	}
}

// only refuses parameters that the package does not know, by name.
func (q *query) only(names ...string) {
	for name := range q.Values {
		known := false
		for _, one := range names {
			known = known || one == name
		}
		if !known && q.err == nil {
			q.err = unsupported("query parameter " + name + " on this route")
		}
	}
}

// page answers the page of a list that limit and cursor select. The cursor is a position here.
func page[T any](q *query, all []T) (any, error) {
	limit, from := q.number("limit", 100, 1, 1000), q.number("cursor", 0, 0, 1<<30)
	if q.err != nil {
		return nil, q.err
	}
	answer := struct {
		Items      []T     `json:"items"`
		NextCursor *string `json:"next_cursor"`
	}{Items: []T{}}
	if from < len(all) {
		answer.Items = all[from:min(len(all), from+limit)]
	}
	if from+limit < len(all) {
		answer.NextCursor = new(strconv.Itoa(from + limit))
	}
	return answer, nil
}
