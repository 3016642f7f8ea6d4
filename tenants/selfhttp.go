package tenants

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
)

// SelfAnswer is the answer of /v1/self: the caller as the service sees it. The platform's operator has no tenant and no quotas.
type SelfAnswer struct {
	Tenant    *string        `json:"tenant"`
	Actor     string         `json:"actor"`
	Scopes    []string       `json:"scopes"`
	Workflows []string       `json:"workflows"`  // the credential is limited to these; null: not limited
	ExpiresAt *time.Time     `json:"expires_at"` // of the credential; null: never
	Quotas    map[string]Use `json:"quotas"`
}

// self answers any caller, also one that is limited to workflows.
func (u Uses) self(c echo.Context) error {
	who := Caller(c)
	answer := SelfAnswer{Actor: who.Subject, Scopes: append([]string{}, who.Scopes...), Workflows: who.Workflows, Quotas: map[string]Use{}}
	if who.ExpiresAt != nil {
		answer.ExpiresAt = new(who.ExpiresAt.UTC())
	}
	if who.Tenant != 0 {
		uses, err := u.Of(c.Request().Context(), who.Tenant)
		if err != nil {
			return err
		}
		answer.Tenant, answer.Quotas = &who.TenantName, uses
	}
	return web.Answer(c, http.StatusOK, answer)
}
