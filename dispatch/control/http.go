package control

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

type controlHandler struct {
	*Control
	*Backfills
	*Replays
}

// Routes adds the routes of triggers, backfills, cancellations, replays and halts to g, whose requests are authenticated.
func Routes(g *echo.Group, c *Control, b *Backfills, r *Replays) {
	h := controlHandler{c, b, r}
	write, writeOrWork := tenants.Require(tenants.SchedulesWrite), tenants.Require(tenants.SchedulesWrite, tenants.TicksWork)
	admin := tenants.Require(tenants.TenantAdmin)
	const one = "/v1/workflows/:workflow/schedules/:key"
	g.POST(one+"/trigger", h.trigger, write, web.NoQuery, web.Conditional)
	g.POST(one+"/backfill", h.backfill, write, web.NoQuery, web.Conditional)
	g.POST("/v1/ticks/:id/cancel", h.cancel, writeOrWork, web.NoQuery)
	g.POST("/v1/ticks/:id/replay", h.replayOne, writeOrWork, web.NoQuery)
	g.POST("/v1/admin/halt", h.halt, admin, web.NoQuery)
	g.POST("/v1/admin/continue", h.resume, admin, web.NoQuery)
	g.POST("/v1/admin/dead-letters/replay", h.replayDead, admin, web.NoQuery)
}

func (h controlHandler) trigger(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
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
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	t, replayed, err := h.Trigger(c.Request().Context(), tenants.From(c), workflow, key, p, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusAccepted, t, replayed)
}

func (h controlHandler) cancel(c echo.Context) error {
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

func (h controlHandler) replayOne(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	t, replayed, err := h.Replay(c.Request().Context(), tenants.From(c), id, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusAccepted, t, replayed)
}

func (h controlHandler) backfill(c echo.Context) error {
	workflow, key, err := web.ScheduleName(c)
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
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	b, replayed, err := h.Backfill(c.Request().Context(), policy.Name{Tenant: tenants.From(c), Workflow: workflow, Key: key}, p, tenants.Caller(c).Subject, request)
	if err != nil {
		return err
	}
	if b.Plan != nil {
		return once.Answer(c, http.StatusOK, b.Plan, replayed)
	}
	return operations.Begun(c, *b.Operation, replayed)
}

func (h controlHandler) replayDead(c echo.Context) error {
	p, err := web.Body[DeadReplayParams](c)
	if err != nil {
		return err
	}
	if p.DryRun {
		preview, err := h.PreviewReplayDead(c.Request().Context(), tenants.From(c), p.Filter)
		if err != nil {
			return err
		}
		return web.Answer(c, http.StatusOK, preview)
	}
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	op, replayed, err := h.ReplayDead(c.Request().Context(), tenants.From(c), p, tenants.Caller(c).Subject, request)
	if err != nil {
		return err
	}
	return operations.Begun(c, op, replayed)
}

func (h controlHandler) halt(c echo.Context) error {
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

func (h controlHandler) resume(c echo.Context) error {
	if _, _, err := web.OptionalBody[struct{}](c); err != nil {
		return err
	}
	f, err := h.Continue(c.Request().Context(), tenants.From(c))
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, f)
}
