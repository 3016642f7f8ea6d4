package tenants

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
)

// Routes adds /v1/quotas and /v1/self to g, whose requests are authenticated.
func (u Uses) Routes(g *echo.Group) {
	g.GET("/v1/quotas", u.get, Require(TenantRead), web.NoQuery)
	g.GET("/v1/self", u.self, web.NoQuery)
}

// QuotasAnswer is the answer of /v1/quotas.
type QuotasAnswer struct {
	Quotas map[string]Use `json:"quotas"`
}

func (u Uses) get(c echo.Context) error {
	uses, err := u.Of(c.Request().Context(), From(c))
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, QuotasAnswer{uses})
}
