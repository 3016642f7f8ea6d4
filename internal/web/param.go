package web

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// Param returns the path segment of that name. It decodes the segment exactly once: `a%2Fb` becomes a/b, and `a%252Fb` becomes a%2Fb.
// It returns a fault 404 for an empty segment, and 422 for one that is not UTF-8 or contains a control character.
// It panics if the route has no such parameter.
func Param(c echo.Context, name string) (string, error) {
	sent := strings.Split(c.Request().URL.EscapedPath(), "/")
	for i, part := range strings.Split(c.Path(), "/") {
		if part != ":"+name {
			continue
		}
		if i >= len(sent) || sent[i] == "" {
			return "", fault.NotFound("there is nothing at this path")
		}
		value, err := url.PathUnescape(sent[i])
		if err != nil {
			return "", fault.Malformed("malformed_path", "the path has a bad percent-encoding")
		}
		return value, plain(name, value)
	}
	panic("no parameter " + name + " in route " + c.Path())
}

// plain returns a fault for a path or query value that is not UTF-8 or contains control characters.
func plain(name, value string) error {
	if !utf8.ValidString(value) {
		return fault.Invalid("/"+Pointer(name), "%s is not UTF-8", name)
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		return fault.Invalid("/"+Pointer(name), "%s contains a control character", name)
	}
	return nil
}
