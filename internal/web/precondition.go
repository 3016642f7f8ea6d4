package web

import (
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// Conditional marks a route whose handler evaluates the preconditions of a request. Every other route refuses them.
func Conditional(next echo.HandlerFunc) echo.HandlerFunc { return next }

const refusedKey = "web.refused" // the answer to a precondition that the route does not evaluate

// conditions finds the preconditions that no handler would evaluate, so that a guarded change is never made unguarded. It
// refuses them at once, but leaves those of /v1/ to Refuse, which runs once the token has been checked.
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
				err := fault.Malformed("precondition_not_supported", "%s is not evaluated here: leave it out", header)
				if !strings.HasPrefix(c.Path(), "/v1/") {
					return err
				}
				c.Set(refusedKey, err)
			}
			return next(c)
		}
	}
}

// Refuse answers 400 to a precondition that the route does not evaluate. It belongs around all routes of /v1/.
func Refuse(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err, refused := c.Get(refusedKey).(error); refused {
			return err
		}
		return next(c)
	}
}
