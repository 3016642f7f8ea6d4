package subjects

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Routes serves keys over all workflows under g, whose requests are authenticated.
func Routes(g *echo.Group, s *Subjects) {
	h := handler{s}
	read, write := tenants.Require(tenants.SchedulesRead), tenants.Require(tenants.SchedulesWrite)
	const one = "/v1/keys/:key"
	g.GET("/v1/keys", h.keys, read)
	g.GET(one, h.key, read, web.NoQuery, web.Conditional)
	g.PUT(one, h.putKey, write, web.NoQuery, web.Conditional)
	g.DELETE(one, h.eraseKey, tenants.Require(tenants.SubjectsErase), web.NoQuery, web.Conditional)
	g.POST(one+"/rename", h.renameKey, write, web.NoQuery)
}

type handler struct{ *Subjects }

func (h handler) keys(c echo.Context) error {
	q, err := web.Query(c, "key_prefix", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	if err := web.NotEmpty(q, "key_prefix", "cursor"); err != nil {
		return err
	}
	page, next, err := h.Keys(c.Request().Context(), tenants.From(c), q.Get("key_prefix"), limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[Key]{Items: page, NextCursor: next})
}

func (h handler) key(c echo.Context) error {
	key, err := web.Param(c, "key")
	if err != nil {
		return err
	}
	k, err := h.Key(c.Request().Context(), tenants.From(c), key)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, int64(k.Version), k)
}

func (h handler) putKey(c echo.Context) error {
	key, err := web.Param(c, "key")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[KeyParams](c)
	if err != nil {
		return err
	}
	k, made, op, err := h.PutKey(c.Request().Context(), tenants.From(c), key, p, tenants.Caller(c).Subject, pre)
	if err != nil {
		return err
	}
	web.Tag(c, int64(k.Version))
	if op != nil {
		return web.Answer(c, http.StatusAccepted, KeyRetiming{k, *op})
	}
	return web.Answer(c, web.PutStatus(made), k)
}

func (h handler) eraseKey(c echo.Context) error {
	key, err := web.Param(c, "key")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	receipt, err := h.Erase(c.Request().Context(), tenants.From(c), key, tenants.Caller(c).Subject, pre)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, receipt)
}

func (h handler) renameKey(c echo.Context) error {
	key, err := web.Param(c, "key")
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
	renamed, replayed, err := h.Rename(c.Request().Context(), tenants.From(c), key, p, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusOK, renamed, replayed)
}
