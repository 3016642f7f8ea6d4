package subjects

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// Routes serves subjects over all workflows under g, whose requests are authenticated.
func Routes(g *echo.Group, s *Subjects) {
	h := handler{s}
	read, write := tenants.Require(tenants.SchedulesRead), tenants.Require(tenants.SchedulesWrite)
	const one = "/v1/subjects/:subject"
	g.GET("/v1/subjects", h.list, read)
	g.GET(one, h.read, read, web.NoQuery, web.Conditional)
	g.PUT(one, h.putSubject, write, web.NoQuery, web.Conditional)
	g.DELETE(one, h.eraseSubject, tenants.Require(tenants.SubjectsErase), web.NoQuery, web.Conditional)
	g.POST(one+"/rename", h.renameSubject, write, web.NoQuery)
	g.POST(one+"/cancel", h.cancelSubject, write, web.NoQuery)
}

type handler struct{ *Subjects }

func (h handler) list(c echo.Context) error {
	q, err := web.Query(c, "subject_prefix", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "subject_prefix", "cursor"); err != nil {
		return err
	}
	page, next, err := h.List(c.Request().Context(), tenants.From(c), q.Get("subject_prefix"), limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[Subject]{Items: page, NextCursor: next})
}

func (h handler) read(c echo.Context) error {
	subject, err := web.Param(c, "subject")
	if err != nil {
		return err
	}
	k, err := h.Subject(c.Request().Context(), tenants.From(c), subject)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, int64(k.Version), k)
}

func (h handler) putSubject(c echo.Context) error {
	subject, err := web.Param(c, "subject")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[SubjectParams](c)
	if err != nil {
		return err
	}
	k, made, op, err := h.PutSubject(c.Request().Context(), tenants.From(c), subject, p, tenants.Caller(c).Subject, pre)
	if err != nil {
		return err
	}
	web.Tag(c, int64(k.Version))
	if op != nil {
		return web.Answer(c, http.StatusAccepted, SubjectRetiming{k, *op})
	}
	return web.Answer(c, web.PutStatus(made), k)
}

func (h handler) eraseSubject(c echo.Context) error {
	subject, err := web.Param(c, "subject")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	receipt, err := h.Erase(c.Request().Context(), tenants.From(c), subject, tenants.Caller(c).Subject, pre)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, receipt)
}

func (h handler) renameSubject(c echo.Context) error {
	subject, err := web.Param(c, "subject")
	if err != nil {
		return err
	}
	p, err := web.Body[RenameParams](c)
	if err != nil {
		return err
	}
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	renamed, replayed, err := h.Rename(c.Request().Context(), tenants.From(c), subject, p, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusOK, renamed, replayed)
}

func (h handler) cancelSubject(c echo.Context) error {
	subject, err := web.Param(c, "subject")
	if err != nil {
		return err
	}
	p, _, err := web.OptionalBody[CancelParams](c)
	if err != nil {
		return err
	}
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	by := schedules.Changer{By: tenants.Caller(c).Subject, Once: request}
	done, begun, replayed, err := h.Cancel(c.Request().Context(), tenants.From(c), subject, p, by)
	if err != nil {
		return err
	}
	if begun != nil {
		c.Response().Header().Set(echo.HeaderLocation, "/v1/operations/"+begun.Operation.ID)
		return once.Answer(c, http.StatusAccepted, begun, replayed)
	}
	return once.Answer(c, http.StatusOK, done, replayed)
}
