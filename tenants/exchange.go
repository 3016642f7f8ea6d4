package tenants

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
)

// tokenTTL is the lifetime of a token for an API key.
const tokenTTL = 10 * time.Minute

// TokenAnswer is the answer with a short-lived token (RFC 6749 section 5.1).
type TokenAnswer struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int    `json:"expires_in"` // seconds
}

// Exchange returns a token with the scopes and the workflows of an API key. It returns a fault 401 for an invalid key.
func (r Credentials) Exchange(ctx context.Context, key string, now time.Time) (TokenAnswer, error) {
	if r.Minter == nil {
		return TokenAnswer{}, fault.Forbidden("no_exchange", "this service exchanges no API keys: it has no private key of its issuer")
	}
	x, ok, err := r.Directory.exchange(ctx, key)
	if err != nil {
		return TokenAnswer{}, err
	}
	ttl := tokenTTL
	if x.ExpiresAt != nil {
		ttl = min(ttl, x.ExpiresAt.Sub(now))
	}
	if !ok || x.Expired || x.Status != Active || ttl < time.Second {
		return TokenAnswer{}, unauthorized("invalid_api_key", "Bearer", "the API key is not valid")
	}
	if err := r.Limits.spendOne(ctx, x.TenantID); err != nil {
		return TokenAnswer{}, err
	}
	if err := r.auditExchange(ctx, x); err != nil {
		return TokenAnswer{}, err
	}
	r.Directory.uses.note(keyName{x.TenantID, x.ID}, r.Directory.now())
	token, err := r.Minter.Mint(Claims{Subject: x.ID, Tenant: x.Tenant, Scopes: x.Scopes, TTL: ttl, APIKey: x.ID, Workflows: x.Workflows}, now)
	if err != nil {
		return TokenAnswer{}, err
	}
	return TokenAnswer{token, "Bearer", int(ttl / time.Second)}, nil
}

// exchange finds the tenant and the rights of a key, at a limited rate.
func (d *Directory) exchange(ctx context.Context, key string) (x keyHolder, ok bool, err error) {
	if !wellFormed(key) {
		return x, false, nil
	}
	err = d.lookups.run(ctx, exchangeRate, func() error {
		x, ok, err = d.findHolder(ctx, hashOf(key))
		return err
	})
	return x, ok, err
}

// auditExchange audits the exchange of a key once an hour for each client network, because a client exchanges its key every ten
// minutes.
func (r Credentials) auditExchange(ctx context.Context, x keyHolder) error {
	address, _ := ctx.Value(addressKey{}).(string)
	now, exchange := r.Directory.now(), keyFrom{keyName{x.TenantID, x.ID}, networkOf(address)}
	if at, known := r.Directory.exchanges.Get(exchange); known && now.Sub(at) < exchangeAuditGap {
		return nil
	}
	err := Audit(postgres.ForTenant(ctx, int32(x.TenantID)), r.DB, x.TenantID, x.ID, Change{Action: "api_key.exchange", Target: keyTarget(x.ID)})
	if err == nil {
		r.Directory.exchanges.Add(exchange, now)
	}
	return err
}
