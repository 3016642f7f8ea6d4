package schedules

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

func (h handler) settings(c echo.Context) error {
	out, err := h.Settings(c.Request().Context(), tenants.From(c))
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, out.Revision, out)
}

func (h handler) patchSettings(c echo.Context) error {
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	patch, err := web.RawBody(c)
	if err != nil {
		return err
	}
	out, err := h.PatchSettings(c.Request().Context(), tenants.From(c), patch, pre)
	if err != nil {
		return err
	}
	web.Tag(c, out.Revision)
	if out.Operation != nil {
		return web.Answer(c, http.StatusAccepted, out)
	}
	return web.Answer(c, http.StatusOK, out)
}
