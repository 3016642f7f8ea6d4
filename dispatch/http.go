package dispatch

import (
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/dispatch/control"
)

// Routes serves ticks and endpoints under g, whose requests are authenticated.
func Routes(g *echo.Group, d *Dispatch) {
	control.Routes(g, d.Control, d.Backfills, d.Replays)
	d.Reader.Routes(g)
	d.Explainer.Routes(g)
	d.Leases.Routes(g)
	d.Pusher.Endpoints.Routes(g)
}
