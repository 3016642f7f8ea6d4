package forecast

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const (
	mostForecastHours = 168
	clocksFor         = 365 * 24 * time.Hour
	mostClocksFor     = 5 * 366 * 24 * time.Hour
)

// Routes serves the forecast and the report of clock changes under g, whose requests are authenticated.
func Routes(g *echo.Group, f *Forecasts) {
	read := tenants.Require(tenants.TenantRead)
	g.GET("/v1/admin/forecast", handler{f}.forecast, read)
	g.GET("/v1/admin/dst", handler{f}.clocks, read)
}

type handler struct{ *Forecasts }

func (h handler) forecast(c echo.Context) error {
	q, err := web.Query(c, "hours", "workflow", "group", "at")
	if err != nil {
		return err
	}
	hours := defaultHours
	if q.Has("hours") {
		if hours, err = strconv.Atoi(q.Get("hours")); err != nil || hours < 1 || hours > mostForecastHours {
			return fault.Invalid("/hours", "%q is not a number from 1 to %d", q.Get("hours"), mostForecastHours)
		}
	}
	workflow, err := workflowOf(q)
	if err != nil {
		return err
	}
	by, minute, err := grouping(q)
	if err != nil {
		return err
	}
	ctx, tenant := c.Request().Context(), tenants.From(c)
	out, err := h.Forecast(ctx, tenant, workflow, hours)
	if err != nil {
		return err
	}
	if q.Has("group") || q.Has("at") {
		groups, truncated, err := h.Groups(ctx, tenant, workflow, by, minute)
		if err != nil {
			return err
		}
		out.Groups, out.Truncated = groups, out.Truncated || truncated
	}
	return web.Answer(c, http.StatusOK, out)
}

// grouping reads by what the forecast is grouped, and the minute whose content is asked for.
func grouping(q url.Values) (by Grouping, minute time.Time, err error) {
	if err := web.NotEmpty(q, "group", "at"); err != nil {
		return by, minute, err
	}
	groups := q.Get("group")
	switch {
	case q.Has("group"):
	case q.Has("at"):
		groups = "workflow,timezone,timing"
	default:
		return by, minute, nil
	}
	if by, err = ReadGrouping(groups); err != nil || !q.Has("at") {
		return by, minute, err
	}
	at, err := web.Moment(q, "at", time.Time{})
	return by, at.Truncate(time.Minute), err
}

func workflowOf(q url.Values) (string, error) {
	if err := web.NotEmpty(q, "workflow"); err != nil || !q.Has("workflow") {
		return "", err
	}
	return q.Get("workflow"), policy.CheckName("/workflow", "workflow", q.Get("workflow"))
}

func (h handler) clocks(c echo.Context) error {
	q, err := web.Query(c, "from", "to", "workflow")
	if err != nil {
		return err
	}
	workflow, err := workflowOf(q)
	if err != nil {
		return err
	}
	from, to, err := web.Range(q, time.Now(), clocksFor, mostClocksFor)
	if err != nil {
		return err
	}
	out, err := h.Clocks(c.Request().Context(), tenants.From(c), workflow, from, to)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, out)
}
