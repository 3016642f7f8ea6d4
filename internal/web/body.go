package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// Body reads the request's body into a T: JSON only (else 415), strictly (see Unmarshal). All that is wrong with its
// fields is reported together, each with its JSON pointer.
func Body[T any](c echo.Context) (T, error) {
	var v T
	raw, err := RawBody(c)
	if err != nil {
		return v, err
	}
	return v, inTurn(c.Request().Context(), len(raw), func() error { return Unmarshal(raw, &v) })
}

// OptionalBody is Body where the request may have no body at all: then it returns the zero T and false.
func OptionalBody[T any](c echo.Context) (v T, sent bool, err error) {
	raw, err := Bytes(c)
	if err != nil || len(bytes.TrimSpace(raw)) == 0 {
		return v, false, err
	}
	if err := contentType(c); err != nil {
		return v, true, err
	}
	return v, true, inTurn(c.Request().Context(), len(raw), func() error { return Unmarshal(raw, &v) })
}

// RawBody is the body as it was sent, held to be JSON by its Content-Type (else 415) alone: Unmarshal reads it.
func RawBody(c echo.Context) ([]byte, error) {
	raw, err := Bytes(c)
	if err != nil {
		return nil, err
	}
	return raw, contentType(c)
}

// bytesKey is where a body lies once it has been read.
const bytesKey = "web.bytes"

// Bytes is the whole body, unpacked, within its limit. It may be called again.
func Bytes(c echo.Context) ([]byte, error) {
	if b, ok := c.Get(bytesKey).([]byte); ok {
		return b, nil
	}
	b, err := readAll(c.Request().Context(), c.Request().Body)
	if err != nil {
		return nil, err
	}
	c.Set(bytesKey, b)
	return b, nil
}

// readAll is io.ReadAll that charges the bytes to the account of a request before it reads them. A large body is unpacked when it is
// the request's turn.
func readAll(ctx context.Context, body io.Reader) ([]byte, error) {
	a := accountOf(ctx)
	size, most := int64(bytes.MinRead), int64(math.MaxInt64)
	in, ok := body.(*inbound)
	if ok {
		defer func() { in.turn.end() }()
		size = max(size, in.announced()+1) // one byte more, to see the end
		if in.limit >= 0 {
			most = in.limit + 1
		}
	}
	var b []byte
	for {
		if ok && in.packed && len(b) >= muchWork {
			if err := in.takeTurn(ctx, a); err != nil {
				return nil, err
			}
		}
		if len(b) == cap(b) {
			size = max(min(size, most), int64(len(b))+1)
			if err := a.take(size - int64(cap(b))); err != nil {
				return nil, err
			}
			b, size = append(make([]byte, 0, size), b...), 2*size
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Digest is a hash of the query and the body, which tells one request from another with the same Idempotency-Key.
func Digest(c echo.Context) ([]byte, error) {
	b, err := Bytes(c)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	h.Write([]byte(c.Request().URL.RawQuery + "\n"))
	h.Write(b)
	return h.Sum(nil), nil
}

func contentType(c echo.Context) error {
	sent := strings.Join(c.Request().Header.Values(echo.HeaderContentType), ", ")
	media, params, err := mime.ParseMediaType(sent)
	charset := strings.ToLower(params["charset"])
	if err != nil || media != "application/json" && media != "application/merge-patch+json" || charset != "" && charset != "utf-8" {
		return fault.New(http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be application/json in UTF-8, not %q", sent)
	}
	return nil
}

// Unmarshal reads raw into v and refuses, as a *fault.Error: what CheckJSON refuses, and members that v has no field
// named exactly so for (400); values of another type, and those that the field's validate tag does not let pass (422). A
// value is null only where the field is tagged null:"yes". A text that may be left out is not empty, unless the field is
// tagged empty:"yes".
// A json.RawMessage or a Raw in v keeps the bytes of its value.
func Unmarshal[T any](raw []byte, v *T) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fault.Malformed("invalid_json", "the body is empty")
	}
	if err := check(raw, shapeOf(reflect.TypeFor[T]())); err != nil {
		return err
	}
	if err := read(raw, v); err != nil {
		return err
	}
	return validate(v)
}

// UnmarshalPatch is Unmarshal of a merge patch (RFC 7396), in which a member of any object may be null, and none is
// required.
func UnmarshalPatch[T any](raw []byte, v *T) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fault.Malformed("invalid_json", "the body is empty")
	}
	if err := scan(raw, shapeOf(reflect.TypeFor[T]()), scanner{patch: true}); err != nil {
		return err
	}
	return read(raw, v)
}

func read(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		if f, ok := errors.AsType[*fault.Error](err); ok {
			return f
		}
		return fault.Invalid("", "%s", err)
	}
	return nil
}

// Members refuses of raw what Unmarshal into a T refuses, validate tags aside, and calls member with each member of the
// object as it was sent: its name, and its value for Member to read. Both are parts of raw where they can be.
func Members[T any](raw []byte, member func(name, value []byte)) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fault.Malformed("invalid_json", "the body is empty")
	}
	return scan(raw, shapeOf(reflect.TypeFor[T]()), scanner{shown: member})
}

// Member reads the value of a member that Members has shown, once that has found nothing wrong with it.
func Member[T any](value []byte) (v T, err error) {
	if s, ok := any(&v).(*string); ok && len(value) > 1 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		*s = string(value[1 : len(value)-1])
		return v, nil
	}
	return v, read(value, &v)
}
