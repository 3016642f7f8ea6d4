package subjectview

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Routes adds the overview of a subject and the explanation of its day to g, whose requests are authenticated.
func Routes(g *echo.Group, v *Views) {
	h := handler{v}
	read := tenants.Require(tenants.SchedulesRead)
	g.GET("/v1/subjects/:subject/overview", h.overview, read, web.NoQuery)
	g.GET("/v1/subjects/:subject/explain", h.explain, read)
}

type handler struct{ *Views }

func (h handler) overview(c echo.Context) error {
	subject, err := web.Param(c, "subject")
	if err != nil {
		return err
	}
	o, err := h.Overview(c.Request().Context(), tenants.From(c), subject)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, o)
}

func (h handler) explain(c echo.Context) error {
	subject, err := web.Param(c, "subject")
	if err != nil {
		return err
	}
	q, err := web.Query(c, "on")
	if err != nil {
		return err
	}
	if !q.Has("on") {
		return fault.Fields(fault.Field{Pointer: "/on", Code: "required", Detail: "on is required: a day such as 2026-11-21"})
	}
	d, err := h.Explain(c.Request().Context(), tenants.From(c), subject, q.Get("on"))
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, d)
}
