package tenants

import (
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

// Routes adds /v1/admin/audit to g, whose requests are authenticated.
func (a Audited) Routes(g *echo.Group) {
	g.GET("/v1/admin/audit", a.list, Require(TenantRead))
}

func (a Audited) list(c echo.Context) error {
	q, err := web.Query(c, "actor", "action", "target", "from", "to", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	f := AuditFilter{Actor: q.Get("actor"), Action: q.Get("action"), Target: q.Get("target")}
	var fromErr, toErr error
	f.From, fromErr = readAuditTime("from", q.Get("from"))
	f.To, toErr = readAuditTime("to", q.Get("to"))
	if err := fault.Join(fromErr, toErr); err != nil {
		return err
	}
	page, next, err := a.Log(c.Request().Context(), From(c), f, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}
