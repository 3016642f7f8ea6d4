package once

import (
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

// Of reads a request's Idempotency-Key, its method and path as the client sent them, and a hash of its query and body. The same key on
// another path is another request.
func Of(c echo.Context) (Request, error) {
	key, err := keyOf(c)
	if err != nil || key == "" {
		return Request{}, err
	}
	fingerprint, err := web.Digest(c)
	sent := c.Request()
	return Request{sent.Method + " " + sent.URL.EscapedPath(), key, fingerprint}, err
}

// keyOf returns the request's Idempotency-Key, or "" if it has none. It returns a fault 400 for two keys, and for a key that is not
// 1 to 255 printable ASCII characters.
func keyOf(c echo.Context) (string, error) {
	sent := c.Request().Header["Idempotency-Key"]
	if len(sent) == 0 {
		return "", nil
	}
	key := sent[0]
	bad := len(sent) > 1 || key == "" || len(key) > 255
	for i := range len(key) {
		bad = bad || key[i] < 0x20 || key[i] > 0x7e
	}
	if bad {
		return "", fault.Malformed("invalid_idempotency_key", "Idempotency-Key must be 1 to 255 printable ASCII characters")
	}
	return key, nil
}

// Answer writes v as JSON with the status. The header Idempotency-Replayed marks a replayed value.
func Answer(c echo.Context, status int, v any, replayed bool) error {
	if replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	return web.Answer(c, status, v)
}
