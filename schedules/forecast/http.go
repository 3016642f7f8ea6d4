package forecast

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

const mostForecastHours = 168

// Routes serves the forecast under g, whose requests are authenticated.
func Routes(g *echo.Group, f *Forecasts) {
	g.GET("/v1/admin/forecast", handler{f}.forecast, tenants.Require(tenants.TenantRead))
}

type handler struct{ *Forecasts }

func (h handler) forecast(c echo.Context) error {
	q, err := web.Query(c, "hours")
	if err != nil {
		return err
	}
	hours := defaultHours
	if q.Has("hours") {
		if hours, err = strconv.Atoi(q.Get("hours")); err != nil || hours < 1 || hours > mostForecastHours {
			return fault.Invalid("/hours", "%q is not a number from 1 to %d", q.Get("hours"), mostForecastHours)
		}
	}
	out, err := h.Forecast(c.Request().Context(), tenants.From(c), hours)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, out)
}
