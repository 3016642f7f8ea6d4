// Package console serves the operator's page, which shows the schedules of a tenant. The page reads the API with a token that its user
// pastes. It sends no request to another host, and has no secret of its own. The package keeps no state.
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

// Routes adds GET /console. The page itself needs no token; its requests to the API do.
func Routes(e *echo.Echo) {
	policy := "default-src 'none'; connect-src 'self'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	send := web.Static("text/html; charset=UTF-8", []byte(page), nil)
	e.GET("/console", func(c echo.Context) error {
		c.Response().Header().Set("Content-Security-Policy", policy)
		return send(c)
	}, web.Conditional)
}

// hashOf returns the source expression that allows the page's element of that name, and no other one (CSP Level 3, section 8.1).
func hashOf(element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
