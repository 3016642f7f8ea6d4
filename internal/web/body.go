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

// Body reads the request's JSON body into a T, as strictly as Unmarshal. Another content type is a fault 415. One fault reports all
// bad fields, each with its JSON pointer.
func Body[T any](c echo.Context) (T, error) {
	var v T
	raw, err := RawBody(c)
	if err != nil {
		return v, err
	}
	return v, inTurn(c.Request().Context(), len(raw), func() error { return Unmarshal(raw, &v) })
}

// OptionalBody is Body for a request that may have no body. Without a body it returns the zero T and false.
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

// RawBody returns the body unparsed. It checks the content type only (else 415); Unmarshal reads the bytes.
func RawBody(c echo.Context) ([]byte, error) {
	raw, err := Bytes(c)
	if err != nil {
		return nil, err
	}
	return raw, contentType(c)
}

// bytesKey is the context key of a body that has been read.
const bytesKey = "web.bytes"

// Bytes returns the whole body, decompressed, within its limit. A second call returns the same bytes.
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

// readAll is io.ReadAll that charges the bytes to the request's account before it reads them. A large compressed body waits for its
// CPU turn before it is decompressed.
func readAll(ctx context.Context, body io.Reader) ([]byte, error) {
	a := accountOf(ctx)
	size, most := int64(bytes.MinRead), int64(math.MaxInt64)
	in, ok := body.(*inbound)
	if ok {
		defer func() { in.turn.end() }()
		size = max(size, in.announced()+1) // one byte more, to read the EOF
		if in.limit >= 0 {
			most = in.limit + 1
		}
	}
	var b []byte
	for {
		if ok && in.compressed && len(b) >= muchWork {
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

// Digest returns a hash of the query and the body. It distinguishes two requests with the same Idempotency-Key.
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

// Unmarshal reads raw into v. It returns a *fault.Error with status 400 for everything that CheckJSON refuses, and for members
// without a field of exactly that name. It returns status 422 for values of a wrong type, and for values that break the field's
// validate tag.
//
// null needs a field with the tag null:"yes". An optional string must not be empty, unless its field has the tag empty:"yes".
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

// UnmarshalPatch is Unmarshal for a merge patch (RFC 7396): a member of any object may be null, and no member is required.
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

// Members calls member with the name and the unparsed value of each member of the object in raw; Member reads such a value. It
// returns the same faults as Unmarshal into a T, except those of validate tags. Both arguments are slices of raw where possible.
func Members[T any](raw []byte, member func(name, value []byte)) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return fault.Malformed("invalid_json", "the body is empty")
	}
	return scan(raw, shapeOf(reflect.TypeFor[T]()), scanner{onMember: member})
}

// Member reads a value that Members passed to its callback. Members must have returned no error.
func Member[T any](value []byte) (v T, err error) {
	if s, ok := any(&v).(*string); ok && len(value) > 1 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		*s = string(value[1 : len(value)-1])
		return v, nil
	}
	return v, read(value, &v)
}
