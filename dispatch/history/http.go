package history

import (
	"net/http"
	"net/url"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
)

type recordHandler struct{ *Reader }

// Routes adds the routes of ticks, dead letters and use to g, whose requests are authenticated.
func (r *Reader) Routes(g *echo.Group) {
	h := recordHandler{r}
	read, readOrWork := tenants.Require(tenants.SchedulesRead), tenants.Require(tenants.SchedulesRead, tenants.TicksWork)
	operator := tenants.Require(tenants.TenantRead)
	g.GET("/v1/workflows/:workflow/schedules/:key/ticks", h.history, read)
	g.GET("/v1/ticks", h.ticks, readOrWork)
	g.GET("/v1/ticks/tail", h.tail, readOrWork, web.Timeout(tailFor))
	g.GET("/v1/ticks/:id", h.tick, readOrWork, web.NoQuery)
	g.GET("/v1/usage", h.usage, operator)
	g.GET("/v1/admin/series", h.series, operator)
	g.GET("/v1/admin/dead-letters", h.deadLetters, operator)
	g.GET("/v1/admin/dead-letters/groups", h.deadGroups, operator)
}

// tickFilter reads the query of a list of ticks or of a tail. A list has more parameters.
func tickFilter(c echo.Context, more ...string) (f Filter, err error) {
	span, err := spanOf(c, append(more, "workflow", "key", "subject", "schedule_id", "operation", "cause")...)
	if err != nil {
		return f, err
	}
	q := c.QueryParams()
	f = Filter{
		Workflow: q.Get("workflow"), Key: q.Get("key"), Subject: q.Get("subject"), ScheduleID: q.Get("schedule_id"),
		Operation: q.Get("operation"), Cause: q.Get("cause"), Span: span,
	}
	return f, checkPicks(q)
}

func (h recordHandler) ticks(c echo.Context) error {
	f, err := tickFilter(c, "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	page, next, err := h.Ticks(c.Request().Context(), tenants.From(c), f, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}

// checkPicks checks those of the parameters that pick ticks which are present.
func checkPicks(q url.Values) error {
	var errs []error
	if q.Has("workflow") {
		errs = append(errs, policy.CheckName("/workflow", "workflow", q.Get("workflow")))
	}
	if q.Has("key") && !policy.ValidKey(q.Get("key")) {
		errs = append(errs, fault.Invalid("/key", "a key is 1 to 256 bytes of UTF-8 without control characters"))
	}
	if q.Has("subject") {
		errs = append(errs, policy.CheckSubject("/subject", q.Get("subject")))
	}
	for _, name := range []string{"schedule_id", "operation", "cause", "state", "cursor"} {
		if q.Has(name) && q.Get(name) == "" || (name == "schedule_id" || name == "operation") && len(q.Get(name)) > 64 {
			errs = append(errs, fault.Invalid("/"+name, "%s must not be empty: omit it or give a value", name))
		}
	}
	return fault.Join(errs...)
}

// deadFilter reads the filter of dead letters. The query may have more parameters.
func deadFilter(c echo.Context, more ...string) (f DeadFilter, err error) {
	q, err := web.Query(c, append(more, "workflow", "endpoint", "key", "from", "to")...)
	if err != nil {
		return f, err
	}
	f = DeadFilter{Workflow: q.Get("workflow"), Endpoint: q.Get("endpoint"), Key: q.Get("key")}
	if q.Has("endpoint") {
		if err := policy.CheckName("/endpoint", "endpoint", f.Endpoint); err != nil {
			return f, err
		}
	}
	if err := checkPicks(q); err != nil {
		return f, err
	}
	from, err := timeParam(q, "from")
	if err != nil {
		return f, err
	}
	to, err := timeParam(q, "to")
	if err != nil {
		return f, err
	}
	if !from.IsZero() {
		f.From = &from
	}
	if !to.IsZero() {
		f.To = &to
	}
	return f, nil
}

func (h recordHandler) deadGroups(c echo.Context) error {
	f, err := deadFilter(c)
	if err != nil {
		return err
	}
	groups, err := h.DeadGroups(c.Request().Context(), tenants.From(c), f)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, groups)
}

func (h recordHandler) deadLetters(c echo.Context) error {
	f, err := deadFilter(c, "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	page, next, err := h.DeadLetters(c.Request().Context(), tenants.From(c), f, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}

func (h recordHandler) history(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	span, err := spanOf(c, "limit", "cursor")
	if err != nil {
		return err
	}
	if err := checkPicks(c.QueryParams()); err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	page, next, err := h.History(c.Request().Context(), policy.Name{Tenant: tenants.From(c), Workflow: workflow, Key: key}, span, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}

// spanOf reads a Span from the query, which may also have the parameters more.
func spanOf(c echo.Context, more ...string) (s Span, err error) {
	q, err := web.Query(c, append(more, "state", "from", "to")...)
	if err != nil {
		return s, err
	}
	s.State = q.Get("state")
	s.From, err = timeParam(q, "from")
	if err != nil {
		return s, err
	}
	s.To, err = timeParam(q, "to")
	return s, err
}

// timeParam reads a parameter that is a time; the zero time if it is absent.
func timeParam(q url.Values, name string) (at time.Time, err error) {
	if !q.Has(name) {
		return at, nil
	}
	if at, err = instant.Parse(q.Get(name)); err != nil {
		return at, fault.Invalid("/"+name, "%q is not an RFC 3339 time", q.Get(name))
	}
	return at, nil
}

func (h recordHandler) tick(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	t, err := h.Tick(c.Request().Context(), tenants.From(c), id)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, t)
}

// Routes adds /v1/admin/overview under g, whose requests are authenticated.
func (o *Overviews) Routes(g *echo.Group) {
	g.GET("/v1/admin/overview", o.get, tenants.Require(tenants.TenantRead), web.NoQuery)
}

func (o *Overviews) get(c echo.Context) error {
	view, err := o.Of(c.Request().Context(), tenants.From(c))
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, view)
}

func (h recordHandler) usage(c echo.Context) error {
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
		errs = append(errs, fault.Invalid("/by", "by and workflow cannot be combined: one workflow always has one row a day"))
	}
	var fromErr, toErr error
	f.From, fromErr = dayIn(q, "from")
	f.To, toErr = dayIn(q, "to")
	return f, fault.Join(append(errs, fromErr, toErr)...)
}

// dayIn reads a parameter that is a day; the zero time if it is absent.
func dayIn(q url.Values, name string) (at time.Time, err error) {
	if !q.Has(name) {
		return at, nil
	}
	if at, err = time.Parse(time.DateOnly, q.Get(name)); err != nil || at.Before(firstDay) {
		return at, fault.Invalid("/"+name, "%q is not a day from 1970 on, such as 2026-11-21", q.Get(name))
	}
	return at, nil
}
