package tenants

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// callerKey is the context key of an authenticated request's Identity.
const callerKey = "tenants.caller"

// Authenticate returns middleware that requires a valid token in the Authorization header. A request without one gets 401 with
// WWW-Authenticate (RFC 6750 section 3). The public routes need no token. The middleware belongs around the whole router: around a
// group, Echo would answer 404 instead of 405 to a wrong method.
func Authenticate(v *Verifier, public ...string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if slices.Contains(public, c.Path()) {
				return next(c)
			}
			token, err := bearerToken(c.Request().Header["Authorization"])
			if err != nil {
				return err
			}
			ctx := withAddress(c.Request().Context(), c.RealIP())
			who, err := v.Identify(ctx, token)
			if err != nil {
				return err
			}
			c.Set(callerKey, who)
			ctx = postgres.ForTenant(ctx, int32(who.Tenant))
			ctx = context.WithValue(ctx, actorKey{}, who.Subject)
			ctx = context.WithValue(ctx, authorityKey{}, authority{v, token})
			c.SetRequest(c.Request().WithContext(ctx))
			web.Note(c, slog.String("tenant", who.TenantName), slog.String("actor", who.Subject))
			return next(c)
		}
	}
}

func bearerToken(sent []string) (string, error) {
	if len(sent) > 1 {
		return "", invalid("the request has more than one Authorization header")
	}
	if len(sent) == 1 {
		scheme, token, _ := strings.Cut(sent[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			return strings.Trim(token, " "), nil
		}
	}
	return "", unauthorized("unauthenticated", "Bearer", "this route needs a token: Authorization: Bearer …")
}

// Require returns middleware for all routes but the public ones, behind Authenticate. The token must have one of the scopes, or a scope
// that implies it, and must not exclude the workflow in the path. Other requests get 403; the answer to a missing scope names the first
// of the scopes.
func Require(scopes ...string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			who := Caller(c)
			if err := who.within(c); err != nil {
				return err
			}
			if slices.ContainsFunc(scopes, who.May) {
				return next(c)
			}
			f := fault.Forbidden("insufficient_scope", "this route needs the scope %s", strings.Join(scopes, " or "))
			f.Header = map[string]string{"WWW-Authenticate": `Bearer error="insufficient_scope", scope="` + scopes[0] + `"`}
			return f
		}
	}
}

// within returns a fault if the token is limited to workflows, and the route is about another workflow or about no workflow.
func (i Identity) within(c echo.Context) error {
	if i.Workflows == nil {
		return nil
	}
	if strings.Contains(c.Path(), "/:workflow") {
		workflow, err := web.Param(c, "workflow")
		if err == nil && !i.MayUse(workflow) {
			err = WorkflowNotAllowed(workflow)
		}
		return err
	}
	if !ofWorker(c.Request().Method, c.Path()) && c.Path() != tailRoute {
		return fault.Forbidden("workflow_not_allowed", "the token is limited to some workflows, and this route is about all")
	}
	return nil // leases and the tail check the workflows themselves
}

// WorkflowNotAllowed returns the fault 403 for a workflow that the token's limit excludes.
func WorkflowNotAllowed(workflow string) error {
	return fault.Forbidden("workflow_not_allowed", "the token does not allow the workflow %q", workflow)
}

// Caller returns the sender of an authenticated request. It panics for any other request.
func Caller(c echo.Context) Identity { return c.Get(callerKey).(Identity) }

// From returns the tenant of an authenticated request. It panics for any other request.
func From(c echo.Context) ID { return Caller(c).Tenant }

// Charged returns the tenant that web.Budget charges for a request; false for a public route.
func Charged(c echo.Context) (int32, bool) {
	who, known := c.Get(callerKey).(Identity)
	return int32(who.Tenant), known
}

// Routes adds /v1/platform/tenants to g, whose requests are authenticated.
func (p Platform) Routes(g *echo.Group) {
	admin := Require(PlatformAdmin)
	g.GET("/v1/platform/tenants", p.list, admin)
	g.GET("/v1/platform/tenants/:tenant", p.get, admin, web.Conditional)
	g.PUT("/v1/platform/tenants/:tenant", p.put, admin, web.Conditional)
	g.PATCH("/v1/platform/tenants/:tenant", p.patchOne, admin, web.NoQuery, web.Conditional)
	g.DELETE("/v1/platform/tenants/:tenant", p.delete, admin, web.NoQuery, web.Conditional)
}

func (p Platform) get(c echo.Context) error {
	if _, err := web.Query(c); err != nil {
		return err
	}
	name, err := web.Param(c, "tenant")
	if err != nil {
		return err
	}
	t, err := Get(c.Request().Context(), p.DB, name)
	if err != nil {
		return err
	}
	return web.AnswerTagged(c, t.revision(), t.answer())
}

func (p Platform) put(c echo.Context) error {
	if _, err := web.Query(c); err != nil {
		return err
	}
	name, err := web.Param(c, "tenant")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	params, err := web.Body[Params](c)
	if err != nil {
		return err
	}
	t, made, err := p.store(c.Request().Context(), name, params, pre)
	if err != nil {
		return err
	}
	web.Tag(c, t.revision())
	return web.Answer(c, web.PutStatus(made), t.answer())
}

func (p Platform) patchOne(c echo.Context) error {
	name, err := web.Param(c, "tenant")
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
	t, err := p.patch(c.Request().Context(), name, patch, pre)
	if err != nil {
		return err
	}
	web.Tag(c, t.revision())
	return web.Answer(c, http.StatusOK, t.answer())
}

func (p Platform) delete(c echo.Context) error {
	name, err := web.Param(c, "tenant")
	if err != nil {
		return err
	}
	pre, err := web.Preconditions(c)
	if err != nil {
		return err
	}
	e, gone, err := p.erase(c.Request().Context(), name, pre)
	if err != nil {
		return err
	}
	if !gone {
		return web.Answer(c, http.StatusAccepted, e)
	}
	return web.Answer(c, http.StatusNoContent, nil)
}

const listFilter = "platform/tenants"

func (p Platform) list(c echo.Context) error {
	if _, err := web.Query(c, "limit", "cursor"); err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	var after string
	paging, err := p.Cursors.Page(0, listFilter, limit, cursor, &after)
	if err != nil {
		return err
	}
	found, err := List(c.Request().Context(), p.DB, after, paging.Rows())
	if err != nil {
		return err
	}
	page, next, err := web.Cut(paging, found, false, func(t Tenant) string { return t.Name })
	if err != nil {
		return err
	}
	out := web.ListAnswer[Answer]{Items: []Answer{}, NextCursor: next}
	for _, t := range page {
		out.Items = append(out.Items, t.answer())
	}
	return web.Answer(c, http.StatusOK, out)
}
