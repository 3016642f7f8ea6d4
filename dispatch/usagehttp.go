package dispatch

import (
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

func (h handler) usage(c echo.Context) error {
	q, err := web.Query(c, "from", "to", "workflow", "by", "limit", "cursor")
	if err != nil {
		return err
	}
	f, err := useFilter(q)
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	page, next, err := h.Usage(c.Request().Context(), tenants.From(c), f, limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[Use]{Items: append([]Use{}, page...), NextCursor: next})
}

func useFilter(q url.Values) (f UseFilter, err error) {
	f = UseFilter{Workflow: q.Get("workflow"), Total: q.Get("by") == "day"}
	errs := []error{checkPicks(q)}
	if by := q.Get("by"); q.Has("by") && by != "day" && by != "workflow" {
		errs = append(errs, fault.Invalid("/by", "%q is neither day nor workflow", by))
	} else if f.Total && f.Workflow != "" {
		errs = append(errs, fault.Invalid("/by", "of one workflow there is a row a day: leave by or workflow out"))
	}
	var fromErr, toErr error
	f.From, fromErr = dayIn(q, "from")
	f.To, toErr = dayIn(q, "to")
	return f, fault.Join(append(errs, fromErr, toErr)...)
}

// dayIn reads a parameter that is a day; zero where it is absent.
func dayIn(q url.Values, name string) (at time.Time, err error) {
	if !q.Has(name) {
		return at, nil
	}
	if at, err = time.Parse(time.DateOnly, q.Get(name)); err != nil || at.Before(firstDay) {
		return at, fault.Invalid("/"+name, "%q is not a day from 1970 on, as 2026-11-21", q.Get(name))
	}
	return at, nil
}
