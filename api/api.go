// Package api is the contract: the OpenAPI document that the service serves, and the page that shows it. Package apitest
// holds the service to it.
package api

import (
	_ "embed"

	"github.com/labstack/echo/v4"
)

// Document is the OpenAPI 3.1 document, in YAML.
//
//go:embed openapi.yaml
var Document []byte

// The reference page, and the files that it loads. The script is embedded as gzip.
var (
	//go:embed reference/index.html
	page []byte
	//go:embed reference/start.js
	start []byte
	//go:embed reference/scalar.js.gz
	script []byte
	//go:embed reference/LICENSE.txt
	license []byte
)

// policy lets the page load what this host serves, and nothing else. The reference styles itself from its script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; " +
	"img-src 'self' data:; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Static makes a handler that answers with content which stays the same: as it is, and as gzip. One of the two may be nil.
type Static = func(media string, plain, packed []byte) echo.HandlerFunc

// Routes adds GET /openapi.yaml. It needs no token. The route has the middleware around it.
func Routes(e *echo.Echo, static Static, around ...echo.MiddlewareFunc) {
	e.GET("/openapi.yaml", static("application/yaml", Document, nil), around...)
}

// PageRoutes adds GET /docs with its files: the reference as a page that asks nothing of any host but this, from which it
// loads /openapi.yaml. None needs a token. Each route has the middleware around it.
func PageRoutes(e *echo.Echo, static Static, around ...echo.MiddlewareFunc) {
	const javascript = "text/javascript; charset=utf-8"
	index := static("text/html; charset=utf-8", page, nil)
	files := map[string]echo.HandlerFunc{
		"scalar.js":   static(javascript, nil, script),
		"start.js":    static(javascript, start, nil),
		"LICENSE.txt": static("text/plain; charset=utf-8", license, nil),
	}
	e.GET("/docs", func(c echo.Context) error {
		c.Response().Header().Set("Content-Security-Policy", policy)
		return index(c)
	}, around...)
	e.GET("/docs/:file", func(c echo.Context) error {
		if file, found := files[c.Param("file")]; found {
			return file(c)
		}
		return echo.ErrNotFound
	}, around...)
}
