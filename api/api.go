// Package api is the contract: the OpenAPI document that the service serves, and the page that shows it. Package apitest
// holds the service to it.
package api

import (
	"embed"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Document is the OpenAPI 3.1 document, in YAML.
//
//go:embed openapi.yaml
var Document []byte

//go:embed reference
var reference embed.FS

// policy lets the page load what this host serves, and nothing else. The reference styles itself from its script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; " +
	"img-src 'self' data:; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Routes adds GET /openapi.yaml and, with its files, GET /docs: the reference as a page that asks nothing of any other
// host. None needs a token.
func Routes(e *echo.Echo) {
	e.GET("/openapi.yaml", func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/yaml", Document)
	})
	e.GET("/docs", func(c echo.Context) error {
		c.Response().Header().Set("Content-Security-Policy", policy)
		return send(c, "index.html", "text/html; charset=utf-8")
	})
	e.GET("/docs/:file", func(c echo.Context) error {
		switch file := c.Param("file"); file {
		case "scalar.js":
			return packed(c, file)
		case "start.js":
			return send(c, file, "text/javascript; charset=utf-8")
		case "LICENSE.txt":
			return send(c, file, "text/plain; charset=utf-8")
		}
		return echo.ErrNotFound
	})
}

func send(c echo.Context, file, media string) error {
	b, err := reference.ReadFile("reference/" + file)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, media, b)
}

// packed sends a script as it is embedded, in gzip, which whoever runs scripts reads.
func packed(c echo.Context, file string) error {
	c.Response().Header().Set("Content-Encoding", "gzip")
	c.Response().Header().Set("Cache-Control", "public, max-age=86400")
	return send(c, file+".gz", "text/javascript; charset=utf-8")
}
