package calendars

import (
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/internal/web"
)

func zones(c echo.Context) error {
	return web.Answer(c, http.StatusOK, ListZones(time.Now()))
}

// zoneYears is for how many years transitions are shown if the request does not say.
const zoneYears = 5

func zone(c echo.Context) error {
	name, err := web.Param(c, "timezone")
	if err != nil {
		return err
	}
	q, err := web.Query(c, "from", "to")
	if err != nil {
		return err
	}
	from, err := moment(q, "from", time.Now().UTC())
	if err != nil {
		return err
	}
	to, err := moment(q, "to", from.AddDate(zoneYears, 0, 0))
	if err != nil {
		return err
	}
	if !from.Before(to) {
		return fault.Invalid("/to", "is not after from")
	}
	answer, err := TransitionsOf(name, from, to)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, answer)
}

// moment returns an instant of the query, from 1970 to 2100, or another if the query does not have it.
func moment(q url.Values, name string, otherwise time.Time) (time.Time, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	at, err := instant.Parse(q.Get(name))
	if err != nil || at.Year() < 1970 || at.Year() > 2100 {
		return at, fault.Invalid("/"+name, "%q is not an RFC 3339 time from 1970 to 2100", q.Get(name))
	}
	return at, nil
}
