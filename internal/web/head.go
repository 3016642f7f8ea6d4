package web

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// heads answers HEAD like GET, without the body (RFC 9110 section 9.3.2). Echo routes by the request's method, so heads changes the
// method to GET until the handler returns.
func heads(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Method != http.MethodHead || isEndless(c) { // no route takes HEAD, so that an endless path is 405
			return next(c)
		}
		r.Method = http.MethodGet
		defer func() { r.Method = http.MethodHead }()
		c.Response().Writer = bodiless{c.Response().Writer}
		return next(c)
	}
}

// isEndless reports whether the answer to GET at the request's path does not end. Such a path has no HEAD.
func isEndless(c echo.Context) bool { return c.Request().URL.Path == "/v1/ticks/tail" }

// bodiless is a response writer that discards the body.
type bodiless struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (bodiless) Write(b []byte) (int, error) { return len(b), nil }

// FlushError implements a method of http.ResponseController. It does nothing, because the method is GET until the handler returns: a
// flush before that would send the end of a chunked body.
func (bodiless) FlushError() error { return nil }

// Unwrap implements a method of http.ResponseController.
func (w bodiless) Unwrap() http.ResponseWriter { return w.ResponseWriter }
