package calendars

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

func zones(c echo.Context) error {
	list := ListZones(time.Now())
	return web.AnswerTagged(c, list.revision, list)
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
	from, err := web.Moment(q, "from", time.Now().UTC())
	if err != nil {
		return err
	}
	to, err := web.Moment(q, "to", from.AddDate(zoneYears, 0, 0))
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
	return web.AnswerTagged(c, revisionOf(answer), answer)
}
