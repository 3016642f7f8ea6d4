package lease

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

type leaseHandler struct{ *Leases }

// Routes adds the routes of leases, heartbeats and the ends of attempts to g, whose requests are authenticated.
func (ls *Leases) Routes(g *echo.Group) {
	h := leaseHandler{ls}
	work := tenants.Require(tenants.TicksWork)
	g.POST("/v1/ticks/lease", h.lease, work, web.NoQuery, web.Timeout(longestPoll+15*time.Second))
	g.POST("/v1/ticks/finish", h.finish, work, web.NoQuery, web.BodyLimit(mostFinished))
	g.POST("/v1/ticks/heartbeat", h.beat, work, web.NoQuery)
	g.POST("/v1/ticks/:id/heartbeat", h.beatOne, work, web.NoQuery)
	g.POST("/v1/ticks/:id/complete", h.complete, work, web.NoQuery)
	g.POST("/v1/ticks/:id/fail", h.fail, work, web.NoQuery)
}

func (h leaseHandler) lease(c echo.Context) error {
	p, err := web.Body[LeaseParams](c)
	if err != nil {
		return err
	}
	for _, workflow := range p.Workflows {
		if !tenants.Caller(c).MayUse(workflow) {
			return tenants.WorkflowNotAllowed(workflow)
		}
	}
	body, err := h.Lease(c.Request().Context(), tenants.From(c), p, web.Stopping(c.Request().Context()))
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", body)
}

// mostFinished limits the bytes of a request that ends ticks.
const mostFinished = 8 << 20

type finishBody struct {
	Ticks []Finish `json:"ticks" most:"1000" validate:"dive"`
}

// FinishResult is the result of a Finish: 204; 404 if there is no such tick; 409 if the token is stale or foreign.
type FinishResult struct {
	TickID string `json:"tick_id"`
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`
}

type finishAnswer struct {
	Results []FinishResult `json:"results"`
}

func (h leaseHandler) finish(c echo.Context) error {
	p, err := web.Body[finishBody](c)
	if err != nil {
		return err
	}
	verdicts, err := h.finishAll(c, p.Ticks)
	if err != nil {
		return err
	}
	results := make([]FinishResult, len(verdicts))
	for i, v := range verdicts {
		status, code := v.shown(http.StatusNoContent)
		results[i] = FinishResult{p.Ticks[i].TickID, status, code}
	}
	return web.Answer(c, http.StatusOK, finishAnswer{results})
}

type beatBody struct {
	Ticks []Beat `json:"ticks" most:"1000" validate:"dive"`
}

// BeatResult is the result of a Beat: 200 with the lease's new end, or as in FinishResult.
type BeatResult struct {
	TickID     string     `json:"tick_id"`
	Status     int        `json:"status"`
	Code       string     `json:"code,omitempty"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
}

type beatAnswer struct {
	Results []BeatResult `json:"results"`
}

func (h leaseHandler) beat(c echo.Context) error {
	p, err := web.Body[beatBody](c)
	if err != nil {
		return err
	}
	beaten, err := h.beatAll(c, p.Ticks)
	if err != nil {
		return err
	}
	results := make([]BeatResult, len(beaten))
	for i, b := range beaten {
		status, code := b.Verdict.shown(http.StatusOK)
		results[i] = BeatResult{p.Ticks[i].TickID, status, code, b.LeaseUntil}
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

func (h leaseHandler) beatOne(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	p, err := web.Body[beatOneBody](c)
	if err != nil {
		return err
	}
	beaten, err := h.beatAll(c, []Beat{{id, p.LeaseToken, p.Lease}})
	if err != nil {
		return withoutPlace(err)
	}
	if v := beaten[0].Verdict; v != Done {
		return refused(id, v)
	}
	return web.Answer(c, http.StatusOK, beatOneAnswer{*beaten[0].LeaseUntil})
}

type completeBody struct {
	LeaseToken string  `json:"lease_token" validate:"required"`
	Result     web.Raw `json:"result,omitempty"`
}

func (h leaseHandler) complete(c echo.Context) error {
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

func (h leaseHandler) fail(c echo.Context) error {
	p, err := web.Body[failBody](c)
	if err != nil {
		return err
	}
	return h.finishOne(c, Finish{LeaseToken: p.LeaseToken, Outcome: "fail", Error: p.Error, Retry: p.Retry, RetryAfter: p.RetryAfter})
}

func (h leaseHandler) finishOne(c echo.Context, f Finish) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	f.TickID = id
	verdicts, err := h.finishAll(c, []Finish{f})
	if err != nil {
		return withoutPlace(err)
	}
	if verdicts[0] != Done {
		return refused(id, verdicts[0])
	}
	return web.Answer(c, http.StatusNoContent, nil)
}

const (
	codeNotFound  = "not_found"
	codeCancelled = "cancelled"
	codeLost      = "lease_lost"
)

// shown returns the status and code that an answer gives for a verdict. done is the status of a claim that held.
func (v Verdict) shown(done int) (status int, code string) {
	switch v {
	case Done:
		return done, ""
	case Absent:
		return http.StatusNotFound, codeNotFound
	case ToldToStop:
		return http.StatusConflict, codeCancelled
	}
	return http.StatusConflict, codeLost
}

// refused returns the fault of a request for one tick whose claim did not hold.
func refused(id string, v Verdict) error {
	switch v {
	case Absent:
		return fault.NotFound("no tick %q", id)
	case ToldToStop:
		return fault.Conflict(codeCancelled, "the tick was cancelled")
	}
	return fault.Conflict(codeLost, "the lease is over: the tick has ended, or another worker has it")
}

// withoutPlace removes the place in the list from the faults of a request for one tick.
func withoutPlace(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		for i := range f.Fields {
			f.Fields[i].Pointer = strings.TrimPrefix(f.Fields[i].Pointer, "/ticks/0")
		}
	}
	return err
}

// finishAll ends ticks for the caller. A lease token of a workflow that the caller's API token does not cover counts as stale.
func (h leaseHandler) finishAll(c echo.Context, items []Finish) ([]Verdict, error) {
	who := tenants.Caller(c)
	err := h.dropForeignTokens(c.Request().Context(), who, len(items), func(i int) (string, *string) { return items[i].TickID, &items[i].LeaseToken })
	if err != nil {
		return nil, err
	}
	return h.Finish(c.Request().Context(), who.Tenant, items)
}

// beatAll lengthens leases for the caller, with the same rule as finishAll.
func (h leaseHandler) beatAll(c echo.Context, items []Beat) ([]Beaten, error) {
	who := tenants.Caller(c)
	err := h.dropForeignTokens(c.Request().Context(), who, len(items), func(i int) (string, *string) { return items[i].TickID, &items[i].LeaseToken })
	if err != nil {
		return nil, err
	}
	return h.Beat(c.Request().Context(), who.Tenant, items)
}
