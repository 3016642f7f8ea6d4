package tenants

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
)

// TokenRoute needs no token: it is where tokens come from.
const TokenRoute = "/v1/token"

// mostToken is how many bytes a request for a token may have: anyone may send one.
const mostToken = 4 << 10

// tokenTTL is how long a token for an API key lives.
const tokenTTL = 10 * time.Minute

// Routes adds the routes of API keys under g, whose requests are authenticated but those of TokenRoute.
func (r Credentials) Routes(g *echo.Group) {
	admin := Require(TenantAdmin)
	g.GET("/v1/admin/api-keys", r.list, admin)
	g.POST("/v1/admin/api-keys", r.post, admin, web.NoQuery)
	g.POST("/v1/admin/api-keys/:id/rotate", r.rotate, admin, web.NoQuery)
	g.DELETE("/v1/admin/api-keys/:id", r.delete, admin, web.NoQuery)
	g.POST(TokenRoute, r.token, web.NoQuery, web.BodyLimit(mostToken))
}

func (r Credentials) post(c echo.Context) error {
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	p, err := web.Body[APIKeyParams](c)
	if err != nil {
		return err
	}
	k, replayed, err := r.Make(c.Request().Context(), Caller(c), p, time.Now(), request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusCreated, k, replayed)
}

func (r Credentials) rotate(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	request, err := once.Of(c)
	if err != nil {
		return err
	}
	k, replayed, err := r.Rotate(c.Request().Context(), Caller(c), id, request)
	if err != nil {
		return err
	}
	return once.Answer(c, http.StatusCreated, k, replayed)
}

const keyFilter = "admin/api-keys"

func (r Credentials) list(c echo.Context) error {
	if _, err := web.Query(c, "limit", "cursor"); err != nil {
		return err
	}
	limit, cursor, err := web.Page(c)
	if err != nil {
		return err
	}
	tenant, after := From(c), ""
	paging, err := r.Cursors.Page(int32(tenant), keyFilter, limit, cursor, &after)
	if err != nil {
		return err
	}
	found, err := APIKeys(c.Request().Context(), r.DB, tenant, after, paging.Rows())
	if err != nil {
		return err
	}
	page, next, err := web.Cut(paging, found, false, func(k APIKey) string { return k.ID })
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, web.ListAnswer[APIKey]{Items: append([]APIKey{}, page...), NextCursor: next})
}

func (r Credentials) delete(c echo.Context) error {
	id, err := web.Param(c, "id")
	if err != nil {
		return err
	}
	tenant := From(c)
	if err := DropAPIKey(c.Request().Context(), r.DB, tenant, id); err != nil {
		return err
	}
	r.Directory.keys.Remove(keyName{tenant, id})
	return c.NoContent(http.StatusNoContent)
}

// tokenParams are what is exchanged.
type tokenParams struct {
	APIKey string `json:"api_key" validate:"required"`
}

// TokenAnswer is a short token (RFC 6749 section 5.1).
type TokenAnswer struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int    `json:"expires_in"` // seconds
}

func (r Credentials) token(c echo.Context) error {
	p, err := web.Body[tokenParams](c)
	if err != nil {
		return err
	}
	if r.Minter == nil {
		return fault.Forbidden("no_exchange", "no API key is exchanged here: this service has no private key of its issuer")
	}
	now := time.Now()
	ctx := withAddress(c.Request().Context(), c.RealIP())
	x, ok, err := r.Directory.exchange(ctx, p.APIKey)
	if err != nil {
		return err
	}
	ttl := tokenTTL
	if x.ExpiresAt != nil {
		ttl = min(ttl, x.ExpiresAt.Sub(now))
	}
	if !ok || x.Status != Active || ttl < time.Second {
		return unauthorized("invalid_api_key", "Bearer", "the API key does not count")
	}
	if err := r.Limits.spendOne(ctx, x.TenantID); err != nil {
		return err
	}
	if err := r.auditExchange(ctx, x); err != nil {
		return err
	}
	r.Directory.uses.note(keyName{x.TenantID, x.ID}, r.Directory.now())
	token, err := r.Minter.Mint(Claims{Subject: x.ID, Tenant: x.Tenant, Scopes: x.Scopes, TTL: ttl, APIKey: x.ID, Workflows: x.Workflows}, now)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, TokenAnswer{token, "Bearer", int(ttl / time.Second)})
}

// auditExchange records that a key is exchanged, once an hour for each network that it is exchanged from: who uses it
// exchanges it every ten minutes.
func (r Credentials) auditExchange(ctx context.Context, x exchanged) error {
	address, _ := ctx.Value(addressKey{}).(string)
	now, exchange := r.Directory.now(), keyFrom{keyName{x.TenantID, x.ID}, networkOf(address)}
	if at, known := r.Directory.exchanges.Get(exchange); known && now.Sub(at) < exchangeToldFor {
		return nil
	}
	err := Audit(postgres.ForTenant(ctx, int32(x.TenantID)), r.DB, x.TenantID, x.ID, Change{Action: "api_key.exchange", Target: keyTarget(x.ID)})
	if err == nil {
		r.Directory.exchanges.Add(exchange, now)
	}
	return err
}

// keyTarget is what the audit calls an API key.
func keyTarget(id string) string { return "admin/api-keys/" + id }
