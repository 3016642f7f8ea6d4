package schedules

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
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
	g.POST("/v1/schedules/preview", h.preview, read)
	g.POST("/v1/schedules/get", h.many, read, web.NoQuery)
	readOrWrite := tenants.Require(tenants.SchedulesRead, tenants.SchedulesWrite)
	g.GET("/v1/workflows", h.workflows, readOrWrite)
	g.PUT("/v1/workflows/:workflow", h.putWorkflow, write, web.NoQuery, web.Conditional)
	g.GET("/v1/workflows/:workflow", h.workflow, readOrWrite, web.NoQuery, web.Conditional)
	g.DELETE("/v1/workflows/:workflow", h.deleteWorkflow, write, web.NoQuery, web.Conditional)
	g.POST("/v1/schedules/actions", h.act, write, web.NoQuery)
}

type handler struct{ *Schedules }

func (h handler) put(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
	if err != nil {
		return err
	}
	if _, err := web.Query(c); err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[Params](c)
	if err != nil {
		return err
	}
	if raw, err := web.Bytes(c); err == nil && p.Note == nil && bytes.Contains(raw, []byte(`"note"`)) {
		p.Noteless = Patch(raw).removes("note")
	}
	s, made, err := h.Put(c.Request().Context(), policy.Name{Tenant: tenants.From(c), Workflow: workflow, Key: key}, p, tenants.Caller(c).Subject, pre)
	if err != nil {
		return err
	}
	tag(c, s)
	return web.Answer(c, web.PutStatus(made), s)
}

func (h handler) patch(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	body, err := web.RawBody(c)
	if err != nil {
		return err
	}
	patch, err := ReadPatch(body)
	if err != nil {
		return err
	}
	s, err := h.Patch(c.Request().Context(), policy.Name{Tenant: tenants.From(c), Workflow: workflow, Key: key}, patch, by.By, by.Pre)
	if err != nil {
		return err
	}
	tag(c, s)
	return web.Answer(c, http.StatusOK, s)
}

func tag(c echo.Context, s Schedule) { web.Tag(c, int64(s.Version)) }

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

func (h handler) delete(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	if err := h.Delete(c.Request().Context(), tenants.From(c), workflow, key, by); err != nil {
		return err
	}
	return web.Answer(c, http.StatusNoContent, nil)
}

func changer(c echo.Context) (workflow, key string, by Changer, err error) {
	if workflow, key, err = web.ScheduleName(c); err != nil {
		return
	}
	if _, err = web.Query(c); err != nil {
		return
	}
	if by.Pre, err = web.Preconditions(c); err != nil {
		return
	}
	by.By = tenants.Caller(c).Subject
	return
}

func (h handler) pause(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, _, err := web.OptionalBody[PauseParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Pause(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}

// answer writes a whole schedule under its ETag.
func answer(c echo.Context, s Schedule, replayed bool) error {
	tag(c, s)
	return once.Answer(c, http.StatusOK, s, replayed)
}

func (h handler) resume(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, _, err := web.OptionalBody[ResumeParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Resume(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}

func (h handler) skip(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	p, err := web.Body[SkipParams](c)
	if err != nil {
		return err
	}
	if by.Once, err = once.Of(c); err != nil {
		return err
	}
	s, replayed, err := h.Skip(c.Request().Context(), tenants.From(c), workflow, key, p, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
}

func (h handler) unskip(c echo.Context) error {
	workflow, key, by, err := changer(c)
	if err != nil {
		return err
	}
	s, replayed, err := h.Unskip(c.Request().Context(), tenants.From(c), workflow, key, by)
	if err != nil {
		return err
	}
	return answer(c, s, replayed)
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
	q, err := web.Query(c, "workflow", "status", "key_prefix", "label", "due_before", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "workflow", "status", "key_prefix", "label", "due_before", "cursor"); err != nil {
		return err
	}
	f := Filter{Workflow: q.Get("workflow"), Status: q.Get("status"), KeyPrefix: q.Get("key_prefix"), Label: q.Get("label")}
	if q.Has("due_before") {
		if err := f.DueBefore.UnmarshalText([]byte(q.Get("due_before"))); err != nil {
			return fault.Invalid("/due_before", "%q is not an RFC 3339 time", q.Get("due_before"))
		}
		f.DueBefore = f.DueBefore.UTC()
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
