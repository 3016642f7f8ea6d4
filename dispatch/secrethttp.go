package dispatch

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

func (h handler) rotateSecret(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	once, err := web.OnceOf(c)
	if err != nil {
		return err
	}
	reply, err := h.RotateSecret(c.Request().Context(), tenants.From(c), name, once)
	if err != nil {
		return err
	}
	return reply.Write(c)
}

func (h handler) tryEndpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	trial, err := h.TryEndpoint(c.Request().Context(), tenants.From(c), name)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, trial)
}
