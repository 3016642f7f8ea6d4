package tenants

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
)

// TokenRoute exchanges an API key for a token. It needs no token itself.
const TokenRoute = "/v1/token"

// mostToken is the maximum size of a request for a token, in bytes. It is small because anyone may send one.
const mostToken = 4 << 10

// Routes adds the routes of API keys to g. The requests of g are authenticated, except those of TokenRoute.
func (r Credentials) Routes(g *echo.Group) {
	admin := Require(TenantAdmin)
	g.GET("/v1/admin/api-keys", r.list, Require(TenantRead))
	g.POST("/v1/admin/api-keys", r.post, admin, web.NoQuery)
	g.POST("/v1/admin/api-keys/:id/rotate", r.rotate, admin, web.NoQuery)
	g.DELETE("/v1/admin/api-keys/:id", r.delete, admin, web.NoQuery)
	g.POST(TokenRoute, r.token, web.NoQuery, web.BodyLimit(mostToken))
}

func (r Credentials) post(c echo.Context) error {
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	p, err := web.Body[APIKeyParams](c)
	if err != nil {
		return err
	}
	k, replayed, err := r.Make(c.Request().Context(), Caller(c), p, time.Now(), request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusCreated, k, replayed)
}

func (r Credentials) rotate(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	k, replayed, err := r.Rotate(c.Request().Context(), Caller(c), id, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusCreated, k, replayed)
}

const keyFilter = "admin/api-keys"

func (r Credentials) list(c echo.Context) error {
	if _, err := web.Query(c, "limit", "cursor"); err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	tenant, after := From(c), ""
	paging, err := r.Cursors.Page(int32(tenant), keyFilter, limit, cursor, &after)
	if err != nil {
		return err
	}
	found, err := listKeys(c.Request().Context(), r.DB, tenant, after, paging.Rows())
	if err != nil {
		return err
	}
	page, next, err := web.Cut(paging, found, false, func(k APIKey) string { return k.ID })
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[APIKey]{Items: append([]APIKey{}, page...), NextCursor: next})
}

func (r Credentials) delete(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	if err := r.Delete(c.Request().Context(), From(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// tokenParams is the body of a request for a token.
type tokenParams struct {
	APIKey string `json:"api_key" validate:"required"`
}

func (r Credentials) token(c echo.Context) error {
	p, err := web.Body[tokenParams](c)
	if err != nil {
		return err
	}
	answer, err := r.Exchange(withAddress(c.Request().Context(), c.RealIP()), p.APIKey, time.Now())
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, answer)
}
