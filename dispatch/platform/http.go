package platform

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Routes adds /v1/platform/overview and /v1/platform/usage to g, whose requests are authenticated.
func Routes(g *echo.Group, e *Engine) {
	h := handler{e}
	admin := tenants.Require(tenants.PlatformAdmin)
	g.GET("/v1/platform/overview", h.overview, admin, web.NoQuery)
	g.GET("/v1/platform/usage", h.usage, admin)
}

type handler struct{ *Engine }

func (h handler) overview(c echo.Context) error {
	v, err := h.Overview(c.Request().Context())
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, v)
}

func (h handler) usage(c echo.Context) error {
	q, err := web.Query(c, "day", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	day := time.Now().UTC().Truncate(24 * time.Hour)
	if q.Has("day") {
		if day, err = time.Parse(time.DateOnly, q.Get("day")); err != nil || day.Year() < 1970 || day.Year() > 9998 {
			return fault.Invalid("/day", "%q is not a day such as 2026-11-23", q.Get("day"))
		}
	}
	page, next, err := h.Usage(c.Request().Context(), day, limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[TenantUse]{Items: page, NextCursor: next})
}
