package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// APIKeyParams define an API key.
type APIKeyParams struct {
	Name      string     `json:"name"`                 // for people
	Scopes    []string   `json:"scopes"`               // such as "schedules:read"
	Workflows []string   `json:"workflows,omitempty"`  // the workflows that the key is limited to; empty: no limit
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // nil: it does not expire
}

// APIKey is a stored API key. Only a hash of the key itself is stored.
type APIKey struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	Workflows []string `json:"workflows"` // nil: all

	ExpiresAt         *time.Time `json:"expires_at"`          // nil: it does not expire
	PreviousExpiresAt *time.Time `json:"previous_expires_at"` // until then the key before the last rotation is accepted too; nil: it is not
	LastUsedAt        *time.Time `json:"last_used_at"`        // nil: never
	CreatedAt         time.Time  `json:"created_at"`
	CreatedBy         string     `json:"created_by"`

	Key string `json:"key,omitempty"` // only MakeAPIKey and RotateAPIKey return it: store it
}

// APIKeys iterates over the API keys of the tenant. An error comes once and ends the loop.
func (a Admin) APIKeys(ctx context.Context) iter.Seq2[APIKey, error] {
	return pages[APIKey](ctx, a.c, path("admin", "api-keys"), url.Values{})
}

// MakeAPIKey makes an API key and returns it with its Key. Only this answer has the Key, so MakeAPIKey does not retry when an answer is lost.
func (a Admin) MakeAPIKey(ctx context.Context, p APIKeyParams) (APIKey, error) {
	r := &call{method: http.MethodPost, path: path("admin", "api-keys"), header: idempotent(""), once: true}
	return send[APIKey](ctx, a.c, r, p)
}

// RotateAPIKey returns a new Key for an API key. The previous key is accepted for another 24 hours. It does not retry when an answer
// is lost: a second rotation would end the key in use.
func (a Admin) RotateAPIKey(ctx context.Context, id string) (APIKey, error) {
	r := &call{method: http.MethodPost, path: path("admin", "api-keys", id, "rotate"), header: idempotent(""), once: true}
	return read[APIKey](ctx, a.c, r)
}

// DeleteAPIKey deletes an API key. Within 5 s it and its tokens are refused everywhere.
func (a Admin) DeleteAPIKey(ctx context.Context, id string) error {
	return a.c.remove(ctx, &call{method: http.MethodDelete, path: path("admin", "api-keys", id)})
}
