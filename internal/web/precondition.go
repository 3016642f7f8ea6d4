package web

import (
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// Conditional marks a route whose handler evaluates preconditions. Every other route refuses them. It is middleware without effect.
func Conditional(next echo.HandlerFunc) echo.HandlerFunc { return next }

const refusedKey = "web.refused" // the context key of the fault for a precondition that the route does not evaluate

// conditions refuses a precondition on a route that does not evaluate it, so that a conditional change is never made
// unconditionally. For routes of /v1/ it stores the fault, and Refuse returns it after the token check.
func conditions(e *echo.Echo) echo.MiddlewareFunc {
	marker := reflect.ValueOf(Conditional).Pointer()
	evaluates := map[string]bool{} // by method and path
	e.OnAddRouteHandler = func(_ string, route echo.Route, _ echo.HandlerFunc, around []echo.MiddlewareFunc) {
		evaluates[route.Method+" "+route.Path] = slices.ContainsFunc(around, func(m echo.MiddlewareFunc) bool {
			return reflect.ValueOf(m).Pointer() == marker
		})
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if does, known := evaluates[c.Request().Method+" "+c.Path()]; does || !known {
				return next(c)
			}
			for _, header := range []string{"If-Match", "If-None-Match"} {
				if len(c.Request().Header.Values(header)) == 0 {
					continue
				}
				err := fault.Malformed("precondition_not_supported", "this route does not support %s: leave it out", header)
				if !strings.HasPrefix(c.Path(), "/v1/") {
					return err
				}
				c.Set(refusedKey, err)
			}
			return next(c)
		}
	}
}

// Refuse is middleware for all routes of /v1/. It returns the fault 400 of a precondition that the route does not evaluate.
func Refuse(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err, refused := c.Get(refusedKey).(error); refused {
			return err
		}
		return next(c)
	}
}
