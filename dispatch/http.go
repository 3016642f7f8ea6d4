package dispatch

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Routes serves ticks and endpoints under g, whose requests are authenticated.
func Routes(g *echo.Group, d *Dispatch) {
	h := handler{d}
	read, write := tenants.Require(tenants.SchedulesRead), tenants.Require(tenants.SchedulesWrite)
	work, readOrWork := tenants.Require(tenants.TicksWork), tenants.Require(tenants.SchedulesRead, tenants.TicksWork)
	endpoints, readEndpoints := tenants.Require(tenants.EndpointsWrite), tenants.Require(tenants.SchedulesRead, tenants.EndpointsWrite)
	writeOrWork := tenants.Require(tenants.SchedulesWrite, tenants.TicksWork)
	const one = "/v1/workflows/:workflow/schedules/:key"
	g.POST(one+"/trigger", h.trigger, write, web.NoQuery, web.Conditional)
	g.GET(one+"/ticks", h.history, read)
	g.POST(one+"/backfill", h.backfill, write, web.NoQuery, web.Conditional)
	g.GET(one+"/explain", h.explain, read)
	g.POST("/v1/ticks/lease", h.lease, work, web.NoQuery, web.Timeout(longestPoll+15*time.Second))
	g.POST("/v1/ticks/finish", h.finish, work, web.NoQuery, web.BodyLimit(mostFinished))
	g.POST("/v1/ticks/heartbeat", h.beat, work, web.NoQuery)
	g.POST("/v1/ticks/:id/heartbeat", h.beatOne, work, web.NoQuery)
	g.POST("/v1/ticks/:id/complete", h.complete, work, web.NoQuery)
	g.POST("/v1/ticks/:id/fail", h.fail, work, web.NoQuery)
	g.GET("/v1/ticks", h.ticks, readOrWork)
	g.GET("/v1/ticks/:id", h.tick, readOrWork, web.NoQuery)
	g.POST("/v1/ticks/:id/cancel", h.cancel, writeOrWork, web.NoQuery)
	g.POST("/v1/ticks/:id/replay", h.replayOne, writeOrWork, web.NoQuery)
	g.GET("/v1/usage", h.usage, tenants.Require(tenants.TenantAdmin))
	g.GET("/v1/admin/dead-letters", h.deadLetters, tenants.Require(tenants.TenantAdmin))
	g.POST("/v1/admin/halt", h.halt, tenants.Require(tenants.TenantAdmin), web.NoQuery)
	g.POST("/v1/admin/continue", h.resume, tenants.Require(tenants.TenantAdmin), web.NoQuery)
	g.POST("/v1/admin/dead-letters/replay", h.replayDead, tenants.Require(tenants.TenantAdmin), web.NoQuery)
	g.GET("/v1/endpoints", h.endpoints, readEndpoints)
	g.PUT("/v1/endpoints/:name", h.putEndpoint, endpoints, web.NoQuery, web.Conditional)
	g.GET("/v1/endpoints/:name", h.endpoint, readEndpoints, web.NoQuery, web.Conditional)
	g.DELETE("/v1/endpoints/:name", h.deleteEndpoint, endpoints, web.NoQuery, web.Conditional)
	g.POST("/v1/endpoints/:name/secrets", h.rotateSecret, endpoints)
	g.POST("/v1/endpoints/:name/test", h.tryEndpoint, endpoints, web.NoQuery, web.Timeout(longestAnswer+queryTimeout))
}

type handler struct{ *Dispatch }
