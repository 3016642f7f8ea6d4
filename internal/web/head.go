package web

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// heads answers HEAD as GET, without the body (RFC 9110 section 9.3.2). Echo routes by the method of the request that came,
// so that one is changed until it is answered.
func heads(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Method != http.MethodHead {
			return next(c)
		}
		r.Method = http.MethodGet
		defer func() { r.Method = http.MethodHead }()
		c.Response().Writer = bodiless{c.Response().Writer}
		return next(c)
	}
}

// bodiless is a response whose body is dropped.
type bodiless struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (bodiless) Write(b []byte) (int, error) { return len(b), nil }

// FlushError is for http.ResponseController. The header goes out once the request is known as HEAD again: before that the server
// would send the end of a chunked body.
func (bodiless) FlushError() error { return nil }

// Unwrap is for http.ResponseController.
func (w bodiless) Unwrap() http.ResponseWriter { return w.ResponseWriter }
