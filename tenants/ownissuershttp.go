package tenants

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// Routes adds /v1/admin/issuers to g, whose requests are authenticated.
func (o OwnIssuers) Routes(g *echo.Group) {
	g.GET("/v1/admin/issuers", o.read, Require(TenantRead), web.NoQuery, web.Conditional)
	g.PUT("/v1/admin/issuers", o.replace, Require(TenantAdmin), web.NoQuery, web.Conditional)
}

func (o OwnIssuers) read(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), postgres.QueryTimeout)
	defer cancel()
	t, err := o.get(ctx, o.DB, From(c), "")
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, t.revision(), t.setIssuers())
}

func (o OwnIssuers) replace(c echo.Context) error {
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[IssuersParams](c)
	if err != nil {
		return err
	}
	t, err := o.put(c.Request().Context(), From(c), p, pre)
	if err != nil {
		return err
	}
	web.Tag(c, t.revision())
	return web.Answer(c, http.StatusOK, t.setIssuers())
}
