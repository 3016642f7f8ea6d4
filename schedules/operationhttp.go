package schedules

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

func operationRoutes(g *echo.Group, h handler) {
	readOrWrite, write := tenants.Require(tenants.SchedulesRead, tenants.SchedulesWrite), tenants.Require(tenants.SchedulesWrite)
	g.GET("/v1/operations", h.operations, readOrWrite)
	g.GET("/v1/operations/:id", h.operation, readOrWrite, web.NoQuery)
	g.POST("/v1/operations/:id/cancel", h.cancelOperation, write, web.NoQuery)
	g.POST("/v1/schedules/actions", h.act, write, web.NoQuery)
}

func (h handler) operations(c echo.Context) error {
	q, err := web.Query(c, "state", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	if err := notEmpty(q, "state", "cursor"); err != nil {
		return err
	}
	page, next, err := h.Operations.List(c.Request().Context(), tenants.From(c), q.Get("state"), limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[OperationAnswer]{Items: page, NextCursor: next})
}

func (h handler) operation(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	op, err := h.Operations.Get(c.Request().Context(), tenants.From(c), id)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, op)
}

func (h handler) cancelOperation(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	op, err := h.Operations.Cancel(c.Request().Context(), tenants.From(c), id)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, op)
}

func (h handler) act(c echo.Context) error {
	p, err := web.Body[ActionParams](c)
	if err != nil {
		return err
	}
	by := Changer{By: tenants.Caller(c).Subject}
	if by.Once, err = web.OnceOf(c); err != nil {
		return err
	}
	reply, err := h.Act(c.Request().Context(), tenants.From(c), p, by)
	if err != nil {
		return err
	}
	return Accepted(c, reply)
}

// Accepted answers with a reply that holds an operation, and says where it is.
func Accepted(c echo.Context, reply web.Reply) error {
	var op struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(reply.Body, &op); err != nil {
		return fmt.Errorf("read the reply: %w", err)
	}
	c.Response().Header().Set(echo.HeaderLocation, "/v1/operations/"+op.ID)
	return reply.Write(c)
}
