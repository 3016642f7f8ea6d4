package history

import (
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

func (h recordHandler) series(c echo.Context) error {
	q, err := web.Query(c, "from", "to", "step", "workflow", "endpoint")
	if err != nil {
		return err
	}
	f, err := seriesFilter(q, time.Now())
	if err != nil {
		return err
	}
	view, err := h.Series(c.Request().Context(), tenants.From(c), f)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, view)
}

// seriesFilter reads the query of a series. Without from it is the last hour before to; without to it ends now. Without step it has at
// most 500 buckets.
func seriesFilter(q url.Values, now time.Time) (f SeriesFilter, err error) {
	f = SeriesFilter{Workflow: q.Get("workflow"), Endpoint: q.Get("endpoint")}
	if err := checkPicks(q); err != nil {
		return f, err
	}
	if q.Has("endpoint") {
		if err := policy.CheckName("/endpoint", "endpoint", f.Endpoint); err != nil {
			return f, err
		}
	}
	if f.To, err = web.Moment(q, "to", now); err != nil {
		return f, err
	}
	if f.From, err = web.Moment(q, "from", f.To.Add(-time.Hour)); err != nil {
		return f, err
	}
	if !f.From.Before(f.To) {
		return f, fault.Invalid("/to", "is not after from")
	}
	if !q.Has("step") {
		f.Step = usualStep(f.To.Sub(f.From))
		return f, nil
	}
	step, known := policy.ParseDuration(q.Get("step"))
	if !known || step < time.Minute || step > 24*time.Hour || (24*time.Hour)%step != 0 || step%time.Minute != 0 {
		return f, fault.Invalid("/step", "%q is not a number of minutes or hours that divides a day, such as 1m, 15m or 6h", q.Get("step"))
	}
	if f.To.Sub(f.From)/step > mostBuckets {
		return f, fault.Invalid("/step", "the time from %s to %s has more than %d such steps: take a longer one", f.From.Format(time.RFC3339), f.To.Format(time.RFC3339), mostBuckets)
	}
	f.Step = step
	return f, nil
}

// usualStep returns the shortest of a few steps of which a period has at most 500.
func usualStep(period time.Duration) time.Duration {
	steps := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour}
	for _, step := range steps {
		if period/step <= 500 {
			return step
		}
	}
	return 24 * time.Hour
}
