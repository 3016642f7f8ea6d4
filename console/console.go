// Package console serves the operator's console: pages that show and change what belongs to one tenant, through the public API alone.
//
//   - In: the built files in dist, which web/ makes; a browser's sign-in with an API key or a token.
//   - Out: the shell, its assets, and a session cookie that middleware turns into an Authorization header for the console's own requests.
//   - Tables: none. A session is the credential itself, encrypted in the cookie.
//   - Locks: one mutex around the codes that are valid once. Crash: the codes are lost, and the next `carillon open` makes another.
package console

import (
	"embed"
	"mime"
	"path"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/web"
)

//go:embed dist
var dist embed.FS

// How long browsers keep the files. An asset has the hash of its content in its name, so it never changes.
const (
	shellCaching = "no-cache"
	assetCaching = "public, max-age=31536000, immutable"
)

// policy lets the page load only what this server sends, and lets no other page frame it. Trusted Types refuse a text as markup or script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'none'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Routes adds the shell, its assets and the sessions.
func Routes(e *echo.Echo, s *Sessions) {
	shell, err := dist.ReadFile("dist/index.html")
	if err != nil {
		panic(err) // dist is a part of the program
	}
	page := guarded(web.StaticFor("text/html; charset=UTF-8", shellCaching, shell))
	e.GET("/console", page, web.Conditional)
	e.GET("/console/*", func(c echo.Context) error {
		if !strings.Contains(c.Request().Header.Get("Accept"), "text/html") {
			return echo.ErrNotFound
		}
		return page(c)
	}, web.Conditional)
	for _, name := range assets() {
		content, err := dist.ReadFile("dist/assets/" + name)
		if err != nil {
			panic(err)
		}
		e.GET("/console/assets/"+name, guarded(web.StaticFor(mime.TypeByExtension(path.Ext(name)), assetCaching, content)), web.Conditional)
	}
	e.GET("/console/assets/*", echo.NotFoundHandler)
	s.routes(e)
}

// assets returns the names of the files in dist/assets.
func assets() []string {
	entries, err := dist.ReadDir("dist/assets")
	if err != nil {
		panic(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// guarded adds the headers that keep other pages out.
func guarded(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		return next(c)
	}
}
