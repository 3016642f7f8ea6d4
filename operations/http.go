package operations

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Routes serves operations under g, whose requests are authenticated.
func Routes(g *echo.Group, o *Operations) {
	h := handler{o}
	readOrWrite, write := tenants.Require(tenants.SchedulesRead, tenants.SchedulesWrite), tenants.Require(tenants.SchedulesWrite)
	g.GET("/v1/operations", h.list, readOrWrite)
	g.GET("/v1/operations/:id", h.get, readOrWrite, web.NoQuery)
	g.POST("/v1/operations/:id/cancel", h.cancel, write, web.NoQuery)
}

type handler struct{ *Operations }

func (h handler) list(c echo.Context) error {
	q, err := web.Query(c, "state", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "state", "cursor"); err != nil {
		return err
	}
	page, next, err := h.List(c.Request().Context(), tenants.From(c), q.Get("state"), limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[Answer]{Items: page, NextCursor: next})
}

func (h handler) get(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	op, err := h.Get(c.Request().Context(), tenants.From(c), id)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, op)
}

func (h handler) cancel(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	op, err := h.Cancel(c.Request().Context(), tenants.From(c), id)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, op)
}

// begun is an operation that began. It is shown as a member of its own too, as in answers that have other members.
type begun struct {
	Answer
	Operation Answer `json:"operation"`
}

// Begun answers 202 with an operation that began, and its URL in Location.
func Begun(c echo.Context, op Answer, replayed bool) error {
	c.Response().Header().Set(echo.HeaderLocation, "/v1/operations/"+op.ID)
	return once.Answer(c, http.StatusAccepted, begun{op, op}, replayed)
}
