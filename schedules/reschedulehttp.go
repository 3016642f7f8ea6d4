package schedules

import (
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
)

func (h handler) reschedule(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, err := web.Body[RescheduleParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Reschedule(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}
