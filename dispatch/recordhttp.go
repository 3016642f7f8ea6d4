package dispatch

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

func (h handler) ticks(c echo.Context) error {
	span, err := spanOf(c, "workflow", "key", "schedule_id")
	if err != nil {
		return err
	}
	q := c.QueryParams()
	f := Filter{Workflow: q.Get("workflow"), Key: q.Get("key"), ScheduleID: q.Get("schedule_id"), Span: span}
	if err := checkPicks(q); err != nil {
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

// checkPicks checks the parameters by which ticks are picked, where they are there.
func checkPicks(q url.Values) error {
	var errs []error
	if q.Has("workflow") {
		errs = append(errs, schedules.CheckName("/workflow", "workflow", q.Get("workflow")))
	}
	if q.Has("key") && !schedules.ValidKey(q.Get("key")) {
		errs = append(errs, fault.Invalid("/key", "a key is 1 to 256 bytes of UTF-8 without control characters"))
	}
	for _, name := range []string{"schedule_id", "state", "cursor"} {
		if q.Has(name) && q.Get(name) == "" || name == "schedule_id" && len(q.Get(name)) > 64 {
			errs = append(errs, fault.Invalid("/"+name, "%s is left out or says something", name))
		}
	}
	return fault.Join(errs...)
}

func (h handler) cancel(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	t, err := h.Cancel(c.Request().Context(), tenants.From(c), id)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, t)
}

func (h handler) replayOne(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	once, err := web.OnceOf(c)
	if err != nil {
		return err
	}
	reply, err := h.Replay(c.Request().Context(), tenants.From(c), id, once)
	if err != nil {
		return err
	}
	return reply.Write(c)
}

func (h handler) backfill(c echo.Context) error {
	workflow, key, err := schedules.Named(c)
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[BackfillParams](c)
	if err != nil {
		return err
	}
	p.Pre = pre
	once, err := web.OnceOf(c)
	if err != nil {
		return err
	}
	reply, err := h.Backfill(c.Request().Context(), tenants.From(c), workflow, key, p, tenants.Caller(c).Subject, once)
	if err != nil {
		return err
	}
	if reply.Status == http.StatusOK {
		return reply.Write(c)
	}
	return schedules.Accepted(c, reply)
}

func (h handler) replayDead(c echo.Context) error {
	p, err := web.Body[DeadReplayParams](c)
	if err != nil {
		return err
	}
	once, err := web.OnceOf(c)
	if err != nil {
		return err
	}
	reply, err := h.ReplayDead(c.Request().Context(), tenants.From(c), p, tenants.Caller(c).Subject, once)
	if err != nil {
		return err
	}
	return schedules.Accepted(c, reply)
}

func (h handler) deadLetters(c echo.Context) error {
	q, err := web.Query(c, "workflow", "key", "from", "to", "limit", "cursor")
	if err != nil {
		return err
	}
	f := DeadFilter{Workflow: q.Get("workflow"), Key: q.Get("key")}
	if err := checkPicks(q); err != nil {
		return err
	}
	from, err := instant(q, "from")
	if err != nil {
		return err
	}
	to, err := instant(q, "to")
	if err != nil {
		return err
	}
	if !from.IsZero() {
		f.From = &from
	}
	if !to.IsZero() {
		f.To = &to
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
