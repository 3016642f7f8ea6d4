// Package console is the operator's page: what a tenant's schedules are doing, read over the API with the token that
// its user pastes. It asks nothing of any other host, and holds no secret itself.
package console

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
)

//go:embed page.html
var page string

// Routes adds GET /console. It needs no token: what it shows does.
func Routes(e *echo.Echo) {
	policy := "default-src 'none'; connect-src 'self'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	send := web.Static("text/html; charset=UTF-8", []byte(page), nil)
	e.GET("/console", func(c echo.Context) error {
		c.Response().Header().Set("Content-Security-Policy", policy)
		return send(c)
	}, web.Conditional)
}

// hashOf lets the page's one element of that name run under the policy, and no other (CSP Level 3, section 8.1).
func hashOf(element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
