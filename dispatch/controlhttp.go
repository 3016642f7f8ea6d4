package dispatch

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

func (h handler) trigger(c echo.Context) error {
	workflow, key, err := schedules.Named(c)
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, _, err := web.OptionalBody[TriggerParams](c)
	if err != nil {
		return err
	}
	p.Pre = pre
	once, err := web.OnceOf(c)
	if err != nil {
		return err
	}
	reply, err := h.Trigger(c.Request().Context(), tenants.From(c), workflow, key, p, once)
	if err != nil {
		return err
	}
	return reply.Write(c)
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

func (h handler) halt(c echo.Context) error {
	p, _, err := web.OptionalBody[HaltParams](c)
	if err != nil {
		return err
	}
	f, err := h.Halt(c.Request().Context(), tenants.From(c), p)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, f)
}

func (h handler) resume(c echo.Context) error {
	if _, _, err := web.OptionalBody[struct{}](c); err != nil {
		return err
	}
	f, err := h.Continue(c.Request().Context(), tenants.From(c))
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, f)
}
