package schedules

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
)

// ActionRoutes serves actions on many schedules under g, whose requests are authenticated.
func ActionRoutes(g *echo.Group, a *Actions) {
	g.POST("/v1/schedules/actions", actionHandler{a}.act, tenants.Require(tenants.SchedulesWrite), web.NoQuery)
}

type actionHandler struct{ *Actions }

func (h actionHandler) act(c echo.Context) error {
	p, err := web.Body[ActionParams](c)
	if err != nil {
		return err
	}
	if p.DryRun {
		preview, err := h.DryRun(c.Request().Context(), tenants.From(c), p)
		if err != nil {
			return err
		}
		return web.Answer(c, http.StatusOK, preview)
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
