package carillon

import (
	"context"
	"net/http"
	"time"
)

// Self is what the server knows of the client's credential.
type Self struct {
	Tenant    string              `json:"tenant"` // empty: the platform's operator
	Actor     string              `json:"actor"`  // the name in logs and in the audit
	Scopes    []string            `json:"scopes"`
	Workflows []string            `json:"workflows"`  // the workflows that the credential is limited to; nil: no limit
	ExpiresAt *time.Time          `json:"expires_at"` // nil: it does not expire
	Quotas    map[string]QuotaUse `json:"quotas"`
}

// QuotaUse is a limit of the tenant and its use.
type QuotaUse struct {
	Limit int64  `json:"limit"`
	Used  *int64 `json:"used"` // now, or of the last second for a rate; nil for a limit of a size
	Soft  bool   `json:"soft"` // four fifths or more of the limit are used
}

// Self returns tenant, scopes, expiry and quotas of the client's credential. Every credential may read it.
func (c *Client) Self(ctx context.Context) (Self, error) {
	return get[Self](ctx, c, path("self"), nil)
}

// TokenAnswer is the token that an API key was exchanged for.
type TokenAnswer struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"` // "Bearer"
	ExpiresIn   int64  `json:"expires_in"` // seconds
}

// Exchange returns a token that lives for ten minutes with the scopes of an API key. A client sends its own key unchanged and does not need
// this; use it to give a token to another program.
func (c *Client) Exchange(ctx context.Context, apiKey string) (TokenAnswer, error) {
	return send[TokenAnswer](ctx, c, &call{method: http.MethodPost, path: path("token")}, map[string]string{"api_key": apiKey})
}
