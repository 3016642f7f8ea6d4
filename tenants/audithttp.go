package tenants

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

// Routes adds /v1/admin/audit and /v1/platform/audit to g, whose requests are authenticated.
func (a Audited) Routes(g *echo.Group) {
	g.GET("/v1/admin/audit", func(c echo.Context) error {
		return list(c, func(ctx context.Context, f AuditFilter, limit int, cursor string) ([]AuditEntry, *string, error) {
			return a.Log(ctx, From(c), f, limit, cursor)
		})
	}, Require(TenantRead))
	g.GET("/v1/platform/audit", func(c echo.Context) error { return list(c, a.PlatformLog) }, Require(PlatformAdmin))
}

// list answers a page of the changes that log returns.
func list(c echo.Context, log func(ctx context.Context, f AuditFilter, limit int, cursor string) ([]AuditEntry, *string, error)) error {
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
	page, next, err := log(c.Request().Context(), f, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}
