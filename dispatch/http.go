package dispatch

import (
	"github.com/labstack/echo/v4"
)

// Routes serves ticks and endpoints under g, whose requests are authenticated.
func Routes(g *echo.Group, d *Dispatch) {
	d.controlRoutes(g)
	d.recordRoutes(g)
	d.explainRoutes(g)
	d.leaseRoutes(g)
	d.endpointRoutes(g)
}
