package push

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func (h endpointHandler) sample(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	q, err := web.Query(c, "at")
	if err != nil {
		return err
	}
	at, err := web.Moment(q, "at", time.Time{})
	if err != nil {
		return err
	}
	s, err := h.Sample(c.Request().Context(), policy.Name{Tenant: tenants.From(c), Workflow: workflow, Key: key}, at)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, s)
}

func (h endpointHandler) health(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	health, err := h.Health(c.Request().Context(), tenants.From(c), name)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, health)
}
