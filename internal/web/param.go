package web

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// Param is the path's segment of that name, decoded exactly once from what was sent: `a%2Fb` is a/b, and `a%252Fb` is
// a%2Fb. A segment that is empty is 404; one that is not UTF-8 or holds a control character is 422.
// It panics where the route has no such parameter.
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
			return "", fault.Malformed("malformed_path", "the path is not percent-encoded as it should be")
		}
		return value, plain(name, value)
	}
	panic("no parameter " + name + " in route " + c.Path())
}

// plain refuses a text of a path or query that is not UTF-8 or holds control characters.
func plain(name, value string) error {
	if !utf8.ValidString(value) {
		return fault.Invalid("/"+Pointer(name), "%s is not UTF-8", name)
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		return fault.Invalid("/"+Pointer(name), "%s holds a control character", name)
	}
	return nil
}
