package push

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

type endpointHandler struct{ *Endpoints }

// Routes adds the routes of endpoints to g, whose requests are authenticated.
func (es *Endpoints) Routes(g *echo.Group) {
	h := endpointHandler{es}
	endpoints, readEndpoints := tenants.Require(tenants.EndpointsWrite), tenants.Require(tenants.SchedulesRead, tenants.EndpointsWrite)
	g.GET("/v1/endpoints", h.endpoints, readEndpoints)
	g.PUT("/v1/endpoints/:name", h.putEndpoint, endpoints, web.NoQuery, web.Conditional)
	g.PATCH("/v1/endpoints/:name", h.patchEndpoint, endpoints, web.NoQuery, web.Conditional)
	g.GET("/v1/endpoints/:name", h.endpoint, readEndpoints, web.NoQuery, web.Conditional)
	g.DELETE("/v1/endpoints/:name", h.deleteEndpoint, endpoints, web.NoQuery, web.Conditional)
	g.POST("/v1/endpoints/:name/secrets", h.rotateSecret, endpoints)
	g.GET("/v1/endpoints/:name/health", h.health, tenants.Require(tenants.TenantRead), web.NoQuery)
	g.GET("/v1/workflows/:workflow/schedules/:key/sample", h.sample, tenants.Require(tenants.SchedulesRead))
	g.POST("/v1/endpoints/:name/test", h.tryEndpoint, endpoints, web.NoQuery, web.Timeout(LongestAnswer+postgres.QueryTimeout))
}

func (h endpointHandler) rotateSecret(c echo.Context) error {
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
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	e, replayed, err := h.RotateSecret(c.Request().Context(), tenants.From(c), name, force, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusCreated, e, replayed)
}

func (h endpointHandler) tryEndpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	trial, replayed, err := h.TryEndpointOnce(c.Request().Context(), tenants.From(c), name, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusOK, trial, replayed)
}

func (h endpointHandler) endpoints(c echo.Context) error {
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
	return web.Answer(c, http.StatusOK, web.ListAnswer[Endpoint]{Items: page, NextCursor: next})
}

func (h endpointHandler) putEndpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[EndpointParams](c)
	if err != nil {
		return err
	}
	p.Pre = pre
	e, made, err := h.PutEndpoint(c.Request().Context(), tenants.From(c), name, p)
	if err != nil {
		return err
	}
	web.Tag(c, e.revision())
	if made {
		return web.Answer(c, http.StatusCreated, e)
	}
	return web.Answer(c, http.StatusOK, e)
}

func (h endpointHandler) patchEndpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	patch, err := web.RawBody(c)
	if err != nil {
		return err
	}
	e, err := h.PatchEndpoint(c.Request().Context(), tenants.From(c), name, patch, pre)
	if err != nil {
		return err
	}
	web.Tag(c, e.revision())
	return web.Answer(c, http.StatusOK, e)
}

func (h endpointHandler) endpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	e, err := h.Endpoint(c.Request().Context(), tenants.From(c), name)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, e.revision(), e)
}

func (h endpointHandler) deleteEndpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	if err := h.DeleteEndpoint(c.Request().Context(), tenants.From(c), name, pre); err != nil {
		return err
	}
	return web.Answer(c, http.StatusNoContent, nil)
}
