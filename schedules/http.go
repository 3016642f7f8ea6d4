package schedules

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Routes serves schedules and workflows under g, whose requests are authenticated.
func Routes(g *echo.Group, s *Schedules) {
	h := handler{s}
	read, write := tenants.Require(tenants.SchedulesRead), tenants.Require(tenants.SchedulesWrite)
	const one = "/v1/workflows/:workflow/schedules/:key"
	g.PUT(one, h.put, write, web.Conditional)
	g.GET(one, h.get, read, web.Conditional)
	g.PATCH(one, h.patch, write, web.Conditional)
	g.DELETE(one, h.delete, write, web.Conditional)
	g.POST(one+"/pause", h.pause, write, web.Conditional)
	g.POST(one+"/resume", h.resume, write, web.Conditional)
	g.POST(one+"/skip", h.skip, write, web.Conditional)
	g.DELETE(one+"/skip", h.unskip, write, web.Conditional)
	g.POST(one+"/reschedule", h.reschedule, write, web.Conditional)
	g.GET(one+"/upcoming", h.upcoming, read)
	g.GET(one+"/revisions", h.revisions, read)
	g.GET("/v1/schedules", h.list, read)
	g.GET("/v1/schedules/:id", h.getByID, read, web.NoQuery, web.Conditional)
	g.POST("/v1/schedules/preview", h.preview, read)
	g.POST("/v1/schedules/get", h.many, read, web.NoQuery)
	readOrWrite := tenants.Require(tenants.SchedulesRead, tenants.SchedulesWrite)
	g.GET("/v1/workflows", h.workflows, readOrWrite)
	g.PUT("/v1/workflows/:workflow", h.putWorkflow, write, web.NoQuery, web.Conditional)
	g.PATCH("/v1/workflows/:workflow", h.patchWorkflow, write, web.NoQuery, web.Conditional)
	g.GET("/v1/workflows/:workflow", h.workflow, readOrWrite, web.NoQuery, web.Conditional)
	g.DELETE("/v1/workflows/:workflow", h.deleteWorkflow, write, web.NoQuery, web.Conditional)
	admin := tenants.Require(tenants.TenantAdmin)
	g.POST("/v1/workflows/:workflow/hold", h.hold, admin, web.NoQuery, web.Conditional)
	g.POST("/v1/workflows/:workflow/release", h.release, admin, web.NoQuery, web.Conditional)
	g.GET("/v1/admin/settings", h.settings, tenants.Require(tenants.TenantRead), web.NoQuery, web.Conditional)
	g.PATCH("/v1/admin/settings", h.patchSettings, admin, web.NoQuery, web.Conditional)
}

type handler struct{ *Schedules }

func (h handler) get(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	if _, err := web.Query(c); err != nil {
		return err
	}
	s, err := h.Get(c.Request().Context(), tenants.From(c), workflow, key)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, int64(s.Version), s)
}

func (h handler) getByID(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	s, err := h.GetByID(c.Request().Context(), tenants.From(c), id)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, int64(s.Version), s)
}

func (h handler) upcoming(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	q, err := web.Query(c, "count", "from")
	if err != nil {
		return err
	}
	count, from := upcomingShown, time.Time{}
	if q.Has("count") {
		text := q.Get("count")
		n, err := strconv.Atoi(text)
		if err != nil {
			return fault.Invalid("/count", "%q is not a whole number", text)
		}
		count = n
	}
	if q.Has("from") {
		if err := from.UnmarshalText([]byte(q.Get("from"))); err != nil {
			return fault.Invalid("/from", "%q is not an RFC 3339 time", q.Get("from"))
		}
	}
	if err := checkCount("/count", count); err != nil {
		return err
	}
	c.Response().Header().Set("Vary", "Accept")
	if wantsICS(strings.Join(c.Request().Header.Values("Accept"), ",")) {
		text, err := h.UpcomingICS(c.Request().Context(), tenants.From(c), workflow, key, count, from.UTC())
		if err != nil {
			return err
		}
		return c.Blob(http.StatusOK, icsType+"; charset=utf-8", []byte(text))
	}
	p, err := h.Upcoming(c.Request().Context(), tenants.From(c), workflow, key, count, from.UTC())
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, p)
}

func (h handler) list(c echo.Context) error {
	q, err := web.Query(c, "workflow", "status", "key", "key_prefix", "key_contains", "subject", "label", "timezone", "calendar", "failing", "due_before", "fields", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "workflow", "status", "key", "key_prefix", "key_contains", "subject", "label", "timezone", "calendar", "failing", "due_before", "fields", "cursor"); err != nil {
		return err
	}
	f := Filter{
		Workflow: q.Get("workflow"), Status: q.Get("status"), Key: q.Get("key"), KeyPrefix: q.Get("key_prefix"), KeyContains: q.Get("key_contains"),
		Subject: q.Get("subject"), Label: q.Get("label"), Timezone: q.Get("timezone"), Calendar: q.Get("calendar"), Failing: q.Get("failing") == "true",
	}
	if q.Has("failing") && !f.Failing {
		return fault.Invalid("/failing", "%q is not true", q.Get("failing"))
	}
	if fields := q.Get("fields"); fields != "" && fields != "full" && fields != "summary" {
		return fault.Invalid("/fields", "%q is not full or summary", fields)
	}
	if q.Has("due_before") {
		if err := f.DueBefore.UnmarshalText([]byte(q.Get("due_before"))); err != nil {
			return fault.Invalid("/due_before", "%q is not an RFC 3339 time", q.Get("due_before"))
		}
		f.DueBefore = f.DueBefore.UTC()
	}
	if q.Get("fields") == "summary" {
		page, next, err := h.ListSummaries(c.Request().Context(), tenants.From(c), f, limit, cursor)
		if err != nil {
			return err
		}
		return web.AnswerPage(c, page, next)
	}
	page, next, err := h.List(c.Request().Context(), tenants.From(c), f, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}

func (h handler) revisions(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	q, err := web.Query(c, "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "cursor"); err != nil {
		return err
	}
	page, next, err := h.Revisions(c.Request().Context(), tenants.From(c), workflow, key, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}

// ManyAnswer are the schedules that were asked for by their keys.
type ManyAnswer struct {
	Items []Schedule `json:"items"`
}

func (h handler) many(c echo.Context) error {
	p, err := web.Body[ManyParams](c)
	if err != nil {
		return err
	}
	answer := web.NewItems(c)
	err = h.Many(c.Request().Context(), tenants.From(c), p, func(some []Schedule) error {
		for i := range some {
			if err := answer.Add(&some[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return answer.Fail(err)
	}
	return answer.End("")
}

func (h handler) preview(c echo.Context) error {
	if _, err := web.Query(c); err != nil {
		return err
	}
	p, err := web.Body[PreviewParams](c)
	if err != nil {
		return err
	}
	quotas, err := h.Quotas(c.Request().Context(), tenants.From(c))
	if err != nil {
		return err
	}
	out, err := h.PreviewSpec(c.Request().Context(), tenants.From(c), p, quotas)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, out)
}

// wantsICS reports whether an Accept header (RFC 9110, section 12.5.1) names iCalendar, and does not prefer JSON.
func wantsICS(accept string) bool {
	calendar, plain := 0.0, 0.0
	for one := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(one)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		switch media {
		case icsType:
			calendar = q
		case "application/json":
			plain = q
		}
	}
	return calendar > 0 && calendar >= plain
}
