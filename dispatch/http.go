package dispatch

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"

	instants "github.com/carillonhq/carillon/internal/instant"
)

// Routes serves ticks and endpoints under g, whose requests are authenticated.
func Routes(g *echo.Group, d *Dispatch) {
	h := handler{d}
	read, write := tenants.Require(tenants.SchedulesRead), tenants.Require(tenants.SchedulesWrite)
	work, readOrWork := tenants.Require(tenants.TicksWork), tenants.Require(tenants.SchedulesRead, tenants.TicksWork)
	endpoints, readEndpoints := tenants.Require(tenants.EndpointsWrite), tenants.Require(tenants.SchedulesRead, tenants.EndpointsWrite)
	writeOrWork := tenants.Require(tenants.SchedulesWrite, tenants.TicksWork)
	const one = "/v1/workflows/:workflow/schedules/:key"
	g.POST(one+"/trigger", h.trigger, write, web.NoQuery, web.Conditional)
	g.GET(one+"/ticks", h.history, read)
	g.POST(one+"/backfill", h.backfill, write, web.NoQuery, web.Conditional)
	g.GET(one+"/explain", h.explain, read)
	g.POST("/v1/ticks/lease", h.lease, work, web.NoQuery, web.Timeout(longestPoll+15*time.Second))
	g.POST("/v1/ticks/finish", h.finish, work, web.NoQuery, web.BodyLimit(mostFinished))
	g.POST("/v1/ticks/heartbeat", h.beat, work, web.NoQuery)
	g.POST("/v1/ticks/:id/heartbeat", h.beatOne, work, web.NoQuery)
	g.POST("/v1/ticks/:id/complete", h.complete, work, web.NoQuery)
	g.POST("/v1/ticks/:id/fail", h.fail, work, web.NoQuery)
	g.GET("/v1/ticks", h.ticks, readOrWork)
	g.GET("/v1/ticks/:id", h.tick, readOrWork, web.NoQuery)
	g.POST("/v1/ticks/:id/cancel", h.cancel, writeOrWork, web.NoQuery)
	g.POST("/v1/ticks/:id/replay", h.replayOne, writeOrWork, web.NoQuery)
	g.GET("/v1/usage", h.usage, tenants.Require(tenants.TenantAdmin))
	g.GET("/v1/admin/dead-letters", h.deadLetters, tenants.Require(tenants.TenantAdmin))
	g.POST("/v1/admin/halt", h.halt, tenants.Require(tenants.TenantAdmin), web.NoQuery)
	g.POST("/v1/admin/continue", h.resume, tenants.Require(tenants.TenantAdmin), web.NoQuery)
	g.POST("/v1/admin/dead-letters/replay", h.replayDead, tenants.Require(tenants.TenantAdmin), web.NoQuery)
	g.GET("/v1/endpoints", h.endpoints, readEndpoints)
	g.PUT("/v1/endpoints/:name", h.putEndpoint, endpoints, web.NoQuery, web.Conditional)
	g.GET("/v1/endpoints/:name", h.endpoint, readEndpoints, web.NoQuery, web.Conditional)
	g.DELETE("/v1/endpoints/:name", h.deleteEndpoint, endpoints, web.NoQuery, web.Conditional)
	g.POST("/v1/endpoints/:name/secrets", h.rotateSecret, endpoints)
	g.POST("/v1/endpoints/:name/test", h.tryEndpoint, endpoints, web.NoQuery, web.Timeout(longestAnswer+queryTimeout))
}

type handler struct{ *Dispatch }

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

func (h handler) history(c echo.Context) error {
	workflow, key, err := schedules.Named(c)
	if err != nil {
		return err
	}
	span, err := spanOf(c)
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
	page, next, err := h.History(c.Request().Context(), tenants.From(c), workflow, key, span, limit, cursor)
	if err != nil {
		return err
	}
	return web.AnswerPage(c, page, next)
}

// spanOf reads a Span from the query, in which the named parameters may be, too.
func spanOf(c echo.Context, more ...string) (s Span, err error) {
	q, err := web.Query(c, append(more, "state", "from", "to", "limit", "cursor")...)
	if err != nil {
		return s, err
	}
	s.State = q.Get("state")
	s.From, err = instant(q, "from")
	if err != nil {
		return s, err
	}
	s.To, err = instant(q, "to")
	return s, err
}

// instant reads a parameter that is a time; zero where it is absent.
func instant(q url.Values, name string) (at time.Time, err error) {
	if !q.Has(name) {
		return at, nil
	}
	if at, err = instants.Parse(q.Get(name)); err != nil {
		return at, fault.Invalid("/"+name, "%q is not an RFC 3339 instant", q.Get(name))
	}
	return at, nil
}

func (h handler) lease(c echo.Context) error {
	p, err := web.Body[LeaseParams](c)
	if err != nil {
		return err
	}
	for _, workflow := range p.Workflows {
		if !tenants.Caller(c).MayUse(workflow) {
			return tenants.Outside(workflow)
		}
	}
	body, err := h.Lease(c.Request().Context(), tenants.From(c), p, web.Stopping(c.Request().Context()))
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", body)
}

// mostFinished is how many bytes a call may have that ends ticks.
const mostFinished = 8 << 20

type finishBody struct {
	Ticks []Finish `json:"ticks" most:"1000" validate:"dive"`
}

type finishAnswer struct {
	Results []FinishResult `json:"results"`
}

func (h handler) finish(c echo.Context) error {
	p, err := web.Body[finishBody](c)
	if err != nil {
		return err
	}
	results, err := h.finishAll(c, p.Ticks)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, finishAnswer{results})
}

type beatBody struct {
	Ticks []Beat `json:"ticks" most:"1000" validate:"dive"`
}

type beatAnswer struct {
	Results []BeatResult `json:"results"`
}

func (h handler) beat(c echo.Context) error {
	p, err := web.Body[beatBody](c)
	if err != nil {
		return err
	}
	results, err := h.beatAll(c, p.Ticks)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, beatAnswer{results})
}

type beatOneBody struct {
	LeaseToken string `json:"lease_token" validate:"required"`
	Lease      string `json:"lease,omitempty"`
}

type beatOneAnswer struct {
	LeaseUntil time.Time `json:"lease_until"`
}

func (h handler) beatOne(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	p, err := web.Body[beatOneBody](c)
	if err != nil {
		return err
	}
	results, err := h.beatAll(c, []Beat{{id, p.LeaseToken, p.Lease}})
	if err != nil {
		return alone(err)
	}
	if r := results[0]; r.Status != http.StatusOK {
		return refused(id, r.Status, r.Code)
	}
	return web.Answer(c, http.StatusOK, beatOneAnswer{*results[0].LeaseUntil})
}

type completeBody struct {
	LeaseToken string  `json:"lease_token" validate:"required"`
	Result     web.Raw `json:"result,omitempty"`
}

func (h handler) complete(c echo.Context) error {
	p, err := web.Body[completeBody](c)
	if err != nil {
		return err
	}
	return h.finishOne(c, Finish{LeaseToken: p.LeaseToken, Outcome: "complete", Result: p.Result})
}

type failBody struct {
	LeaseToken string `json:"lease_token" validate:"required"`
	Error      string `json:"error" validate:"required"`
	Retry      *bool  `json:"retry,omitempty"`
	RetryAfter string `json:"retry_after,omitempty"`
}

func (h handler) fail(c echo.Context) error {
	p, err := web.Body[failBody](c)
	if err != nil {
		return err
	}
	return h.finishOne(c, Finish{LeaseToken: p.LeaseToken, Outcome: "fail", Error: p.Error, Retry: p.Retry, RetryAfter: p.RetryAfter})
}

func (h handler) finishOne(c echo.Context, f Finish) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	f.TickID = id
	results, err := h.finishAll(c, []Finish{f})
	if err != nil {
		return alone(err)
	}
	if r := results[0]; r.Status != http.StatusNoContent {
		return refused(id, r.Status, r.Code)
	}
	return web.Answer(c, http.StatusNoContent, nil)
}

func refused(id string, status int, code string) error {
	switch {
	case status == http.StatusNotFound:
		return fault.NotFound("no tick %q", id)
	case code == codeCancelled:
		return fault.Conflict(code, "the tick was cancelled")
	}
	return fault.Conflict(code, "the lease is over: the tick has ended, or another has it")
}

// alone relocates the faults of a list of one to the one.
func alone(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		for i := range f.Fields {
			f.Fields[i].Pointer = strings.TrimPrefix(f.Fields[i].Pointer, "/ticks/0")
		}
	}
	return err
}

func (h handler) tick(c echo.Context) error {
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

func (h handler) endpoints(c echo.Context) error {
	if _, err := web.Query(c, "limit", "cursor"); err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	page, next, err := h.Endpoints(c.Request().Context(), tenants.From(c), limit, cursor)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[Endpoint]{Items: page, NextCursor: next})
}

func (h handler) putEndpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	p, err := web.Body[EndpointParams](c)
	if err != nil {
		return err
	}
	p.Pre = pre
	e, made, err := h.PutEndpoint(c.Request().Context(), tenants.From(c), name, p)
	if err != nil {
		return err
	}
	web.Tag(c, e.revision())
	if made {
		return web.Answer(c, http.StatusCreated, e)
	}
	return web.Answer(c, http.StatusOK, e)
}

func (h handler) endpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	e, err := h.Endpoint(c.Request().Context(), tenants.From(c), name)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, e.revision(), e)
}

func (h handler) deleteEndpoint(c echo.Context) error {
	name, err := web.Param(c, "name")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	if err := h.DeleteEndpoint(c.Request().Context(), tenants.From(c), name, pre); err != nil {
		return err
	}
	return web.Answer(c, http.StatusNoContent, nil)
}
