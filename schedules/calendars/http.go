package calendars

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Routes serves calendars under g, whose requests are authenticated.
func Routes(g *echo.Group, all *Calendars) {
	h := handler{all}
	read := tenants.Require(tenants.SchedulesRead, tenants.SchedulesWrite)
	write := tenants.Require(tenants.SchedulesWrite)
	g.GET("/v1/zones", zones, web.NoQuery, web.Conditional) // any token may read zones
	g.GET("/v1/zones/:timezone", zone, web.Conditional)
	g.GET("/v1/calendars", h.calendars, read)
	g.GET("/v1/calendars/:calendar", h.calendar, read, web.NoQuery, web.Conditional)
	g.PUT("/v1/calendars/:calendar", h.putCalendar, write, web.Conditional)
	g.DELETE("/v1/calendars/:calendar", h.deleteCalendar, write, web.NoQuery, web.Conditional)
}

type handler struct{ *Calendars }

func (h handler) calendars(c echo.Context) error {
	if _, err := web.Query(c, "limit", "cursor"); err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	page, next, err := h.List(c.Request().Context(), tenants.From(c), limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[Calendar]{Items: page, NextCursor: next})
}

func (h handler) calendar(c echo.Context) error {
	name, err := web.Param(c, "calendar")
	if err != nil {
		return err
	}
	one, err := h.Get(c.Request().Context(), tenants.From(c), name)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, one.revision(), one)
}

func (h handler) putCalendar(c echo.Context) error {
	name, err := web.Param(c, "calendar")
	if err != nil {
		return err
	}
	q, err := web.Query(c, "dry_run")
	if err != nil {
		return err
	}
	dryRun, err := web.Flag(q, "dry_run")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[Params](c)
	if err != nil {
		return err
	}
	p.Pre, p.DryRun = pre, dryRun
	one, made, err := h.Put(c.Request().Context(), tenants.From(c), name, p, tenants.Caller(c).Subject)
	if err != nil {
		return err
	}
	web.Tag(c, one.revision())
	return web.Answer(c, web.PutStatus(made && !dryRun), one)
}

func (h handler) deleteCalendar(c echo.Context) error {
	name, err := web.Param(c, "calendar")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	if err := h.Delete(c.Request().Context(), tenants.From(c), name, pre); err != nil {
		return err
	}
	return web.Answer(c, http.StatusNoContent, nil)
}
