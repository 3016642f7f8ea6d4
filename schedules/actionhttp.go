package schedules

import (
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
)

func (h handler) act(c echo.Context) error {
	p, err := web.Body[ActionParams](c)
	if err != nil {
		return err
	}
	by := Changer{By: tenants.Caller(c).Subject}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	op, replayed, err := h.Act(c.Request().Context(), tenants.From(c), p, by)
	if err != nil {
		return err
	}
	return operations.Begun(c, op, replayed)
}
