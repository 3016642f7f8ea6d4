package dispatch

import (
	"github.com/labstack/echo/v4"
)

// Routes serves ticks and endpoints under g, whose requests are authenticated.
func Routes(g *echo.Group, d *Dispatch) {
	d.Control.Routes(g)
	d.Reader.Routes(g)
	d.Explainer.Routes(g)
	d.Leases.Routes(g)
	d.Pusher.Routes(g)
}
