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
	q, err := web.Query(c, "force")
	if err != nil {
		return err
	}
	force, err := web.Flag(q, "force")
	if err != nil {
		return err
	}
	once, err := web.OnceOf(c)
	if err != nil {
		return err
	}
	reply, err := h.RotateSecret(c.Request().Context(), tenants.From(c), name, force, once)
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
	once, err := web.OnceOf(c)
	if err != nil {
		return err
	}
	ctx, tenant := c.Request().Context(), tenants.From(c)
	reply, err := once.RunApart(ctx, h.API, int32(tenant), 2*longestAnswer, func() (int, any, error) {
		trial, err := h.TryEndpoint(ctx, tenant, name)
		return http.StatusOK, trial, err
	})
	if err != nil {
		return err
	}
	return reply.Write(c)
}
