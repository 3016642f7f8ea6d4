package schedules

import (
	"context"
	"net/http"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
	"github.com/labstack/echo/v4"
)

func (h handler) workflows(c echo.Context) error {
	if _, err := web.Query(c, "limit", "cursor"); err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	page, next, err := h.Workflows(c.Request().Context(), tenants.From(c), limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[Workflow]{Items: page, NextCursor: next})
}

func (h handler) putWorkflow(c echo.Context) error {
	name, err := web.Param(c, "workflow")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[WorkflowParams](c)
	if err != nil {
		return err
	}
	p.Pre = pre
	w, made, err := h.PutWorkflow(c.Request().Context(), tenants.From(c), name, p)
	if err != nil {
		return err
	}
	web.Tag(c, w.revision())
	return web.Answer(c, web.PutStatus(made), w)
}

func (h handler) patchWorkflow(c echo.Context) error {
	name, err := web.Param(c, "workflow")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	patch, err := web.RawBody(c)
	if err != nil {
		return err
	}
	w, err := h.PatchWorkflow(c.Request().Context(), tenants.From(c), name, patch, pre)
	if err != nil {
		return err
	}
	web.Tag(c, w.revision())
	return web.Answer(c, http.StatusOK, w)
}

func (h handler) workflow(c echo.Context) error {
	name, err := web.Param(c, "workflow")
	if err != nil {
		return err
	}
	w, err := h.Workflow(c.Request().Context(), tenants.From(c), name)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, w.revision(), w)
}

func (h handler) deleteWorkflow(c echo.Context) error {
	name, err := web.Param(c, "workflow")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	if err := h.DeleteWorkflow(c.Request().Context(), tenants.From(c), name, pre); err != nil {
		return err
	}
	return web.Answer(c, http.StatusNoContent, nil)
}

func (h handler) hold(c echo.Context) error    { return changeHeld(c, h.Hold) }
func (h handler) release(c echo.Context) error { return changeHeld(c, h.Release) }

func changeHeld(c echo.Context, change func(context.Context, tenants.ID, string, version.Precondition) (Workflow, error)) error {
	name, err := web.Param(c, "workflow")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	w, err := change(c.Request().Context(), tenants.From(c), name, pre)
	if err != nil {
		return err
	}
	web.Tag(c, w.revision())
	return web.Answer(c, http.StatusOK, w)
}
