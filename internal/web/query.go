package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// The number of items on a page of a list.
const (
	maxLimit     = 1000
	defaultLimit = 100
)

// Query returns the request's query parameters. A parameter that is not named, or appears twice, is a fault 400. A value that is not
// UTF-8 or contains control characters is a fault 422.
func Query(c echo.Context, names ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, fault.Malformed("malformed_query", "the query has a bad percent-encoding")
	}
	var bad []fault.Field
	for name, values := range q {
		field := fault.Field{Pointer: "/" + Pointer(name)}
		switch {
		case !slices.Contains(names, name):
			field.Code, field.Detail = "unknown_parameter", "this route has no parameter "+strconv.Quote(name)
		case len(values) > 1:
			field.Code, field.Detail = "duplicate_parameter", "the parameter "+name+" appears twice"
		default:
			if err := plain(name, values[0]); err != nil {
				return nil, err
			}
			continue
		}
		bad = append(bad, field)
	}
	if len(bad) == 0 {
		return q, nil
	}
	slices.SortFunc(bad, func(a, b fault.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	f := fault.Fields(bad...)
	f.Status = 400
	return nil, f
}

// Flag returns a boolean query parameter. Without the parameter it returns false.
func Flag(q url.Values, name string) (bool, error) {
	switch value := q.Get(name); {
	case !q.Has(name) || value == "false":
		return false, nil
	case value == "true":
		return true, nil
	default:
		return false, fault.Invalid("/"+name, "%q is neither true nor false", value)
	}
}

// NoQuery is middleware for a route without query parameters. It refuses every parameter, like Query.
func NoQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if _, err := Query(c); err != nil {
			return err
		}
		return next(c)
	}
}

// Page returns the parameters limit and cursor of a list request. limit is 1 to 1000, by default 100. cursor is "" for the first page.
func Page(c echo.Context) (limit int, cursor string, err error) {
	q := c.QueryParams()
	limit = defaultLimit
	if q.Has("limit") {
		limit, err = strconv.Atoi(q.Get("limit"))
		if err != nil || limit < 1 || limit > maxLimit {
			return 0, "", fault.Invalid("/limit", "limit must be a whole number from 1 to %d", maxLimit)
		}
	}
	if q.Has("cursor") && q.Get("cursor") == "" {
		return 0, "", fault.Invalid("/cursor", "cursor is empty: leave it out for the first page")
	}
	return limit, q.Get("cursor"), nil
}
